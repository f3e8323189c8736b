/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * start.c - the start of a program that is linked for glibc 2.28. `portable-cc` links it into each
 * program.
 *
 * Since 2.34 the C library itself runs the constructors of a program. Before, the start code of
 * the program passed a function that does. glibc of any version runs a function that is given.
 */
#include <stddef.h>

#define EXPORT __attribute__((visibility("hidden")))

typedef int main_function(int argc, char **argv, char **envp);
typedef void init_function(int argc, char **argv, char **envp);
typedef void end_function(void);

extern init_function *const __init_array_start[] EXPORT, *const __init_array_end[] EXPORT;
extern end_function _init EXPORT;

extern int start_main_2_2_5(main_function *, int, char **, init_function *, end_function *,
                            end_function *, void *);
__asm__(".symver start_main_2_2_5, __libc_start_main@GLIBC_2.2.5");

/* The dynamic linker calls the functions in __preinit_array. */
static void run_constructors(int argc, char **argv, char **envp)
{
	_init();
	for (init_function *const *each = __init_array_start; each < __init_array_end; each++)
		(*each)(argc, argv, envp);
}

EXPORT int __libc_start_main(main_function *main, int argc, char **argv, init_function *init,
                             end_function *fini, end_function *rtld_fini, void *stack_end)
{
	(void)init;
	(void)fini;
	return start_main_2_2_5(main, argc, argv, run_constructors, NULL, rtld_fini, stack_end);
}
