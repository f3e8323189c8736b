/* For nagaya dsm report: task 1 reads what task 0 writes, all tasks but the first write parts of
   one page, and task 1 alone writes a page that lives with task 0. */
#include <jia.h>

enum { PAGE = 8192, PAGES = 10, TURNS = 5 };

static volatile long sum;

__attribute__((noinline)) static void fetch_all(volatile char *pages)
{
    for (int page = 0; page < PAGES; page++)
        sum += pages[page * PAGE]; /* they are fetched here */
}

int main(int argc, char **argv)
{
    jia_init(argc, argv);
    volatile char *pages = (char *)jia_alloc2p(PAGES * PAGE, 0);
    volatile char *parts = (char *)jia_alloc2p(PAGE, 0);
    volatile char *far = (char *)jia_alloc2p(PAGE, 0);
    for (int turn = 1; turn <= TURNS; turn++) {
        for (int page = 0; jiapid == 0 && page < PAGES; page++)
            pages[page * PAGE] = turn;
        jia_barrier();
        if (jiapid == 1) {
            fetch_all(pages);
            far[0] = turn;
        }
        if (jiapid > 0)
            parts[(jiapid - 1) * PAGE / 2] = turn;
        jia_barrier();
    }
    jia_exit();
    return 0;
}
