/* Prints a line and powers off. */
#include "weir.h"

int main(const void *device_tree)
{
	int64_t restarts = weir_restarts();

	(void)device_tree;
	weir_puts("hello: GICv");
	weir_put_number(weir_gic_version());
	if (restarts == WEIR_NOT_SUPPORTED) {
		weir_puts(", without weir\n");
	} else {
		weir_puts(", restarts ");
		weir_put_number(restarts);
		weir_putc('\n');
	}
	return 0;
}
