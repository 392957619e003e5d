/* Work in torch's OpenMP threads: a second thread pool would compete with them for the cores. */

#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

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
    void (*work_fn)(const void *, i64);
    const void *p;
    i64 num_shares;
} work_item;

#if defined(SPLIT_BFLOAT16)
__thread i64 tile_rows __attribute__((visibility("hidden"))) = 0;

/* Other code in the thread may set the tile registers up in another way. */
static void release_registers(void) {
    if (tile_rows) _tile_release();
    tile_rows = 0;
}

enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

/* Linux lets a process use the tile registers once it has asked; 0 if it may. */
i64 request_tiles(void) { return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA); }
#else
static void release_registers(void) {}
#endif

/* Gradients that vanish over many steps become denormal numbers, and products of these take a hundred times longer on
 * many processors: here they are zero. The bits of the control register are FTZ (results) and DAZ (factors). */
static void run_share(const work_item *all, i64 share) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    all->work_fn(all->p, share);
    _mm_setcsr(before);
    release_registers();
}

/* There may be fewer threads than were asked for (OMP_THREAD_LIMIT, OMP_DYNAMIC): then one takes several shares. */
static void one_thread(void *work) {
    const work_item *all = work;
    for (i64 k = thread_number(); k < all->num_shares; k += number_of_threads()) run_share(all, k);
}

void in_threads(void (*work_fn)(const void *, i64), const void *p, i64 num_shares) {
    work_item work = {work_fn, p, num_shares};
    if (num_shares > 1) start_threads(one_thread, &work, (unsigned)num_shares, 0);
    else run_share(&work, 0);
}

i64 tile_width(void) { return WIDTH; }
i64 padded_depth(i64 depth) { return padded(depth); }

i64 panel_cache __attribute__((visibility("hidden"))) = 1 << 19;

void set_panel_cache(i64 bytes) { panel_cache = bytes; }
