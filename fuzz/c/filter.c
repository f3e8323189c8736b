/* filter.c - the gate's evaluation of seccomp filters, for fuzz targets (src/gate.rs). */
#include "../../space/gate/c/gate.h"

/* No system call is made. */
static inline long no_call(long nr, u64 a, u64 b, u64 c)
{
	(void)nr, (void)a, (void)b, (void)c;
	return -1;
}
#undef raw3
#define raw3(nr, a, b, c) no_call(nr, (u64)(a), (u64)(b), (u64)(c))

/* All memory is valid. */
u64 copy_string(void *to, const void *from, u64 size)
{
	__builtin_memcpy(to, from, size);
	return 0;
}

char *put_text(char *to, const char *text)
{
	while (*text)
		*to++ = *text++;
	return to;
}

void allow_forks(struct task *t)
{
	(void)t;
}

#include "../../space/gate/c/filter.c"

/* Returns the value of a filter for a call. */
u32 fuzz_gate_filter(const struct instruction *instructions, u16 length, const struct call *call)
{
	struct program program = {length, instructions};
	return evaluate(&program, call);
}
