#!/usr/sbin/dtrace -qs
/*
 * A server runtime: structures of its own, and what DTrace's users see instead of them, by translators.
 */
#pragma D depends_on library procfs.d

typedef struct {
	int32_t fd;
	int32_t port;
	uint32_t remote;
	uint32_t buffered;
} rt_connection_t;

typedef struct {
	uint64_t url;
	uint64_t method;
} rt_request_t;

typedef struct {
	int fd;
	string remoteAddress;
	int remotePort;
} connection_t;

translator connection_t <rt_connection_t *nc> {
	fd = *(int32_t *)copyin((uintptr_t)&nc->fd, sizeof (int32_t));
	remotePort = *(int32_t *)copyin((uintptr_t)&nc->port, sizeof (int32_t));
	remoteAddress = copyinstr((uintptr_t)*(uint32_t *)copyin((uintptr_t)&nc->remote, sizeof (uint32_t)));
};

provider node {
	probe net__server__connection(rt_connection_t *c, const char *a, int p, int fd) :
	    (connection_t *c, string a, int p, int fd);
	probe net__stream__end(rt_connection_t *c, const char *a, int p, int fd) : (connection_t *c, string a, int p, int fd);
	probe http__server__request(rt_request_t *h, rt_connection_t *c, const char *a, int p, const char *m,
	    const char *u, int fd) :
	    (connection_t *c, string a, int p, string m, string u, int fd);
	probe gc__start(int t, int f, void *isolate);
	probe gc__done(int t, int f, void *isolate);
};

#pragma D attributes Evolving/Evolving/ISA provider node provider
#pragma D attributes Private/Private/Unknown provider node module
#pragma D attributes Private/Private/Unknown provider node function
#pragma D attributes Private/Private/ISA provider node name
#pragma D attributes Evolving/Evolving/ISA provider node args
