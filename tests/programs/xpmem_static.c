/* Task 1 attaches static data of task 0, which may be linked to fixed addresses: by a
 * separate segment, and as part of all memory. */
#include "check.h"

#include <pvas.h>
#include <xpmem.h>

#define PAGE 4096ul

static long words[1024] __attribute__((aligned(4096)));
static struct {
	xpmem_segid_t part, all;
	long *words;
	volatile int done;
} told;

int main(void)
{
	int me = pvas_getid();
	CHECK(me >= 0);
	if (me == 0) {
		for (int i = 0; i < 1024; i++)
			words[i] = i;
		told.part = xpmem_make(words, sizeof words, XPMEM_PERMIT_MODE, (void *)0600);
		told.all = xpmem_make(0, XPMEM_MAXADDR_SIZE, XPMEM_PERMIT_MODE, (void *)0600);
		told.words = words;
		CHECK(told.part > 0 && told.all > 0);
		CHECK_EQ(pvas_export("told", &told, sizeof told), 0);
		while (!told.done)
			check_parent(), usleep(500);
		CHECK_EQ(words[5], 55);
		CHECK_EQ(words[1000], 66);
		return 0;
	}
	typeof(told) *its;
	CHECK_EQ(pvas_import(PVAS_SELF, 0, "told", (void **)&its, NULL, 60000), 0);
	struct xpmem_addr part = {.apid = xpmem_get(its->part, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL)};
	struct xpmem_addr all = {.apid = xpmem_get(its->all, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL),
	                         .offset = (long)its->words};
	CHECK(part.apid > 0 && all.apid > 0);
	long *there = xpmem_attach(part, sizeof words, NULL);
	CHECK(there != (void *)-1);
	CHECK_EQ(there[1023], 1023);
	there[5] = 55;
	there = xpmem_attach(all, sizeof words, NULL);
	CHECK(there != (void *)-1);
	CHECK_EQ(there[5], 55);
	there[1000] = 66;
	its->done = 1;
	return 0;
}
