/* Preloaded before libxpmem: looks on as a program attaches memory. Says at the end how
 * often, and how much at once, if ever; and ends a program that is given another address
 * than the memory has in its owner. For programs that make all of their address space one
 * segment, as UCX does: there, offsets are addresses. */
#include "check.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <xpmem.h>

static atomic_size_t times, largest;

void *xpmem_attach(struct xpmem_addr addr, size_t size, void *vaddr)
{
	void *(*real)(struct xpmem_addr, size_t, void *) = dlsym(RTLD_NEXT, "xpmem_attach");
	CHECK(real != NULL);
	void *got = real(addr, size, vaddr);
	CHECK(got == (void *)addr.offset);
	times++;
	size_t most = largest;
	while (size > most && !atomic_compare_exchange_weak(&largest, &most, size))
		;
	return got;
}

__attribute__((destructor)) static void report(void)
{
	if (times > 0)
		fprintf(stderr, "attached %zu times, at most %zu bytes\n", times, largest);
}
