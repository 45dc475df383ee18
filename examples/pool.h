/* pool.h - a pool of POSIX threads as pimattn's parallel_for.
 *
 * Workers claim one index after the other, so that a descheduled one holds up a single item. They
 * wait for the next call awake for a moment, then asleep. Needs GNU or C11 atomics of the compiler.
 */
#ifndef EX_POOL_H
#define EX_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { EX_POOL_MOST = 64, EX_POOL_SPINS = 20000 };

typedef struct ex_pool {
    void (*fn)(void *arg, size_t index, size_t worker);
    void *arg;
    size_t n;
    size_t next;      /* index to claim */
    size_t left;      /* workers that have not finished the call under way */
    uint64_t calls;   /* begun; workers wait for the next one */
    uint64_t ended;   /* no more calls */
    size_t n_workers; /* the caller is worker 0 */
    size_t n_started;
    pthread_t threads[EX_POOL_MOST];
    pthread_mutex_t lock;
    pthread_cond_t begin;
} ex_pool;

static inline void ex_pool_pause(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static inline void ex_pool_work(ex_pool *pool, size_t worker)
{
    for (;;) {
        size_t index = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (index >= pool->n) break;
        pool->fn(pool->arg, index, worker);
    }
}

/* Waits for a call beyond the last one; false if there will be none. */
static inline bool ex_pool_wait(ex_pool *pool, uint64_t *last)
{
    for (int i = 0; i < EX_POOL_SPINS; i++) {
        if (__atomic_load_n(&pool->calls, __ATOMIC_ACQUIRE) != *last) break;
        ex_pool_pause();
    }
    pthread_mutex_lock(&pool->lock);
    while (__atomic_load_n(&pool->calls, __ATOMIC_ACQUIRE) == *last && !pool->ended)
        pthread_cond_wait(&pool->begin, &pool->lock);
    bool more = __atomic_load_n(&pool->calls, __ATOMIC_ACQUIRE) != *last;
    pthread_mutex_unlock(&pool->lock);
    ++*last;
    return more;
}

/* What a thread of the pool is. */
static inline void *ex_pool_main(void *user)
{
    ex_pool *pool = (ex_pool *)user;
    uint64_t last = 0;
    pthread_mutex_lock(&pool->lock);
    size_t worker = ++pool->n_started;
    pthread_mutex_unlock(&pool->lock);
    while (ex_pool_wait(pool, &last)) {
        ex_pool_work(pool, worker);
        __atomic_fetch_sub(&pool->left, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* A pimattn_parallel_for; user is the pool. */
static inline void ex_pool_for(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    ex_pool *pool = (ex_pool *)user;
    pool->fn = fn;
    pool->arg = arg;
    pool->n = n;
    pool->next = 0;
    pool->left = pool->n_workers - 1;
    pthread_mutex_lock(&pool->lock);
    __atomic_fetch_add(&pool->calls, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    ex_pool_work(pool, 0);
    while (__atomic_load_n(&pool->left, __ATOMIC_ACQUIRE) != 0)
        ex_pool_pause();
}

static inline void ex_pool_stop(ex_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->ended = 1;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 1; i < pool->n_workers; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->begin);
    pthread_mutex_destroy(&pool->lock);
}

/* Starts n_workers - 1 threads, fewer if the system has no more: pool->n_workers says. */
static inline void ex_pool_start(ex_pool *pool, size_t n_workers)
{
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begin, NULL);
    if (n_workers > EX_POOL_MOST) n_workers = EX_POOL_MOST;
    for (pool->n_workers = 1; pool->n_workers < n_workers; pool->n_workers++)
        if (pthread_create(&pool->threads[pool->n_workers], NULL, ex_pool_main, pool) != 0) break;
}

#endif
