/* kernel.h - puts a made-up kernel under the gate's C code: every system call that the
 * included files make goes to `made_up_kernel`. To be included before they are. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define raw6 real_raw6
#include "../../c/gate.h"
#undef raw6
static long made_up_kernel(long nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f);
#define raw6(nr, a, b, c, d, e, f) \
	made_up_kernel(nr, (u64)(a), (u64)(b), (u64)(c), (u64)(d), (u64)(e), (u64)(f))

struct space space;

__attribute__((noreturn, format(printf, 1, 2), unused)) static void fail(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fflush(stdout);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	abort();
}
