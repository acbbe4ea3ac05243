/* A server's threads at work: server REQUESTS [THREADS [PAUSE]]; PAUSE is how long a query takes, in microseconds. */
#define _GNU_SOURCE
#include "server.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *const paths[] = {
    "/index.html", "/<b>bold</b>", "/caf\xc3\xa9", "/\x1b[31mred", "/\xff\xfe", "=1+1", "/a,\"b\"", "</script><script>alert(1)</script>",
};
static int requests, pause_us;

static void rest(long microseconds)
{
    struct timespec time = { 0, microseconds * 1000 };
    if (microseconds)
        nanosleep(&time, NULL);
}

static void *work(void *number)
{
    int first = (int)(long)number * requests;
    for (int id = first; id < first + requests; id++) {
        const char *path = paths[id % 8];
        SERVER_REQUEST_START(id, (char *)path);
        SERVER_PARSE_BEGIN(id);
        rest(pause_us / 4);
        SERVER_PARSE_END(id, (unsigned long)id * 100);
        if (id % 3 == 0)
            SERVER_CACHE_MISS((char *)path);
        for (int query = 0; query <= id % 3; query++) {
            SERVER_QUERY_START(id, "select name from people");
            rest(pause_us + pause_us * (id % 5) / 2);
            SERVER_QUERY_DONE(id, query);
        }
        SERVER_REQUEST_DONE(id, id % 7 ? 200 : 404);
        rest(pause_us / 3);
    }
    return NULL;
}

int main(int count, char **words)
{
    pthread_t threads[16];
    int wanted = count > 2 ? atoi(words[2]) : 1;
    requests = count > 1 ? atoi(words[1]) : 10;
    pause_us = count > 3 ? atoi(words[3]) : 0;
    for (long i = 0; i < wanted; i++) {
        char name[16];
        pthread_create(&threads[i], NULL, work, (void *)i);
        snprintf(name, sizeof name, "worker-%ld", i + 1);
        pthread_setname_np(threads[i], name);
    }
    for (int i = 0; i < wanted; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
