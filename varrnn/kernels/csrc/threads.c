/* Work in torch's own threads, where they are libgomp's; others would fight with them for the cores. */

#include "tiles.h"

static void (*start_threads)(void (*)(void *), void *, unsigned, unsigned);
static int (*thread_number)(void);
static int (*number_of_threads)(void);

void use_threads(void *start, void *number, void *all) {
    start_threads = (void (*)(void (*)(void *), void *, unsigned, unsigned))start;
    thread_number = (int (*)(void))number;
    number_of_threads = (int (*)(void))all;
}

typedef struct {
    void (*task)(const void *, word);
    const void *of;
    word shares;
} job;

/* There may be fewer threads than were asked for (OMP_THREAD_LIMIT, OMP_DYNAMIC): then one takes several shares. */
static void one_thread(void *work) {
    const job *all = work;
    for (word k = thread_number(); k < all->shares; k += number_of_threads()) all->task(all->of, k);
}

void in_threads(void (*task)(const void *, word), const void *of, word shares) {
    job work = {task, of, shares};
    if (shares > 1) start_threads(one_thread, &work, (unsigned)shares, 0);
    else task(of, 0);
}

word width_of_a_tile(void) { return WIDTH; }
