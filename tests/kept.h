/* kept.h - large blocks that are given back are given out again: for programs with the address
 * sanitizer, which marks all of a block at every malloc and free, in memory it has anew each time.
 * That was most of the time that tests took with it. (glibc keeps them: tests/run.sh.)
 *
 *     gcc -x c -c -o kept.o tests/kept.h
 *     gcc -fsanitize=address .. kept.o -Wl,--wrap=malloc,--wrap=realloc,--wrap=free
 *
 * As before no one may touch what is given back nor what lies behind a block, and a block that
 * nobody gives back is a leak.
 */
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdlib.h>

enum { LARGE = 128 << 10, UNIT = 1 << 20, PART = 256 << 10, MOST = 4096, MOST_KEPT = 32 };

void *__real_malloc(size_t bytes);
void *__real_realloc(void *at, size_t bytes);
void __real_free(void *at);
void *__wrap_malloc(size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
void __wrap_free(void *at);

/* Blocks of whole units. */
static struct block {
    void *kept;              /* given back; NULL: not */
    uintptr_t used;          /* its address, that none but its user be seen to know it: ~; or 0 */
    size_t bytes, more, age; /* asked for, beyond these; when it was given back */
} blocks[MOST];
static size_t n_blocks, n_kept, clock_now; /* those from n_blocks on never were in use */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* By parts: of more at once the sanitizer maps what opens it anew. */
static void set_closed(void *at, size_t bytes, int shut)
{
    for (char *part = (char *)at; bytes > 0;) {
        const size_t n = bytes < PART ? bytes : PART;
        if (shut) __asan_poison_memory_region(part, n);
        if (!shut) __asan_unpoison_memory_region(part, n);
        part += n;
        bytes -= n;
    }
}

static void hand_out(struct block *b, void *at, size_t bytes, size_t more)
{
    b->kept = NULL;
    b->used = ~(uintptr_t)at;
    b->bytes = bytes;
    b->more = more;
    set_closed((char *)at + bytes, more, 1);
}

void *__wrap_malloc(size_t bytes)
{
    const size_t more = (~bytes + 1) % UNIT;
    if (bytes < LARGE || bytes + more < bytes) return __real_malloc(bytes);
    struct block *none = NULL, *b = blocks;
    void *at;
    pthread_mutex_lock(&lock);
    for (; b < blocks + n_blocks && !(b->kept && b->bytes + b->more == bytes + more); b++)
        if (!b->kept && !b->used) none = b;
    if (b < blocks + n_blocks) {
        at = b->kept;
        n_kept--;
        set_closed(at, bytes + more, 0);
        hand_out(b, at, bytes, more);
    } else {
        if (!none && n_blocks < MOST) none = &blocks[n_blocks++];
        at = __real_malloc(none ? bytes + more : bytes);
        if (at && none) hand_out(none, at, bytes, more);
    }
    pthread_mutex_unlock(&lock);
    return at;
}

/* The block that is used at this place, all of which may be touched from here on; or NULL. One that
 * is given back twice ends in the sanitizer's words, as it does if it is touched. */
static struct block *block_at(void *at)
{
    struct block *b = blocks;
    for (; b < blocks + n_blocks && !(b->used && b->used == ~(uintptr_t)at); b++)
        if (b->kept == at) __asan_report_error(__builtin_return_address(0), 0, 0, at, 1, 1);
    if (b == blocks + n_blocks) return NULL;
    set_closed((char *)at + b->bytes, b->more, 0);
    b->used = 0;
    return b;
}

void __wrap_free(void *at)
{
    pthread_mutex_lock(&lock);
    struct block *b = at ? block_at(at) : NULL, *oldest = NULL;
    if (b) {
        b->kept = at;
        b->age = clock_now++;
        set_closed(at, b->bytes + b->more, 1);
        at = NULL;
        if (++n_kept > MOST_KEPT) {
            for (b = blocks; b < blocks + n_blocks; b++)
                if (b->kept && (!oldest || b->age < oldest->age)) oldest = b;
            at = oldest->kept;
            oldest->kept = NULL;
            n_kept--;
            set_closed(at, oldest->bytes + oldest->more, 0);
        }
    }
    pthread_mutex_unlock(&lock);
    __real_free(at);
}

void *__wrap_realloc(void *at, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (at) block_at(at);
    pthread_mutex_unlock(&lock);
    return __real_realloc(at, bytes);
}
