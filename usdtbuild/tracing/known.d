/* Probes of well-known programs and libraries, whose files don't say what their arguments are.

A declaration is used where its arguments are as many as a record has, and texts and pointers as wide as there. What
other versions declare of the same probe stands in another block of the same provider. Each block begins and ends at
the start of a line, since `known` takes them out one by one.
*/

/* CPython built with --with-dtrace: Doc/howto/instrumentation.rst, Include/pydtrace.d */
provider python {
    probe function__entry(char *filename, char *function, int line);
    probe function__return(char *filename, char *function, int line);
    probe instance__new__start(char *type, char *module);
    probe instance__new__done(char *type, char *module);
    probe instance__delete__start(char *type, char *module);
    probe instance__delete__done(char *type, char *module);
    probe line(char *filename, char *function, int line);
    probe gc__start(int generation);
    probe gc__done(long collected);
    probe import__find__load__start(char *module);
    probe import__find__load__done(char *module, int found);
    probe audit(char *event, void *arguments);
};

/* GCC's libstdc++-v3/libsupc++: eh_throw.cc, eh_catch.cc */
provider libstdcxx {
    probe throw(void *object, void *type);
    probe rethrow(void *object, void *type);
    probe catch(void *object, void *type);
};

/* GCC's libgcc/unwind-dw2.c */
provider libgcc {
    probe unwind(void *cfa, void *handler);
};

/* glibc built with --enable-systemtap: manual/probes.texi, and the LIBC_PROBEs of malloc, nptl, setjmp, libio */
provider libc {
    probe memory_sbrk_more(void *end, size_t size);
    probe memory_sbrk_less(void *end, size_t size);
    probe memory_heap_new(void *heap, size_t size);
    probe memory_heap_free(void *heap, size_t size);
    probe memory_heap_more(void *heap, size_t size);
    probe memory_heap_less(void *heap, size_t size);
    probe memory_malloc_retry(size_t bytes);
    probe memory_realloc_retry(size_t bytes, void *memory);
    probe memory_memalign_retry(size_t bytes, size_t alignment);
    probe memory_calloc_retry(size_t bytes);
    probe memory_arena_retry(size_t bytes, void *arena);
    probe memory_arena_new(void *arena, size_t size);
    probe memory_arena_reuse(void *arena, void *previous);
    probe memory_arena_reuse_wait(void *mutex, void *arena, void *previous);
    probe memory_arena_reuse_free_list(void *arena);
    probe memory_mallopt(int parameter, int value);
    probe memory_mallopt_mxfast(int value, int previous);
    probe memory_mallopt_trim_threshold(int value, int previous, int no_dynamic);
    probe memory_mallopt_top_pad(int value, int previous, int no_dynamic);
    probe memory_mallopt_mmap_threshold(int value, int previous, int no_dynamic);
    probe memory_mallopt_mmap_max(int value, int previous, int no_dynamic);
    probe memory_mallopt_perturb(int value, int previous);
    probe memory_mallopt_arena_test(int value, int previous);
    probe memory_mallopt_arena_max(int value, int previous);
    probe memory_mallopt_free_dyn_thresholds(int mmap_threshold, int trim_threshold);
    probe memory_tunable_tcache_max_bytes(int value, int previous);
    probe memory_tunable_tcache_count(int value, int previous);
    probe memory_tunable_tcache_unsorted_limit(int value, int previous);
    probe memory_tcache_double_free(void *memory, int bin);
    probe setjmp(void *environment, int saves_mask, void *address);
    probe longjmp(void *environment, int value, void *address);
    probe longjmp_target(void *environment, int value, void *address);
    probe pthread_create(void *thread, void *attributes, void *start, void *argument);
    probe pthread_start(void *thread, void *start, void *argument);
    probe pthread_join(void *thread);
    probe pthread_join_ret(void *thread, int error, void *result);
    probe mutex_init(void *mutex);
    probe mutex_destroy(void *mutex);
    probe mutex_entry(void *mutex);
    probe mutex_acquired(void *mutex);
    probe mutex_release(void *mutex);
    probe mutex_timedlock_entry(void *mutex, void *until);
    probe mutex_timedlock_acquired(void *mutex);
    probe cond_init(void *condition, void *attributes);
    probe cond_destroy(void *condition);
    probe cond_wait(void *condition, void *mutex);
    probe cond_signal(void *condition);
    probe cond_broadcast(void *condition);
    probe rdlock_entry(void *lock);
    probe rdlock_acquire_read(void *lock);
    probe wrlock_entry(void *lock);
    probe wrlock_acquire_write(void *lock);
    probe rwlock_unlock(void *lock);
    probe rwlock_destroy(void *lock);
    probe lll_lock_wait_private(void *futex);
    probe lll_lock_wait(void *futex, int flags);
    probe sem_wait(void *semaphore);
};

/* glibc's dynamic linker: elf/rtld.c, dl-open.c, dl-close.c */
provider rtld {
    probe init_start(long space, void *debug);
    probe init_complete(long space, void *debug);
    probe map_start(long space, void *debug);
    probe map_complete(long space, void *debug, void *map);
    probe map_failed(long space, void *debug);
    probe reloc_start(long space, void *debug);
    probe reloc_complete(long space, void *debug, void *map);
    probe unmap_start(long space, void *debug);
    probe unmap_complete(long space, void *debug);
    probe lll_lock_wait_private(void *futex);
    probe setjmp(void *environment, int saves_mask, void *address);
    probe longjmp(void *environment, int value, void *address);
    probe longjmp_target(void *environment, int value, void *address);
};

/* PostgreSQL: doc/src/sgml/monitoring.sgml, src/backend/utils/probes.d */
provider postgresql {
    probe transaction__start(unsigned id);
    probe transaction__commit(unsigned id);
    probe transaction__abort(unsigned id);
    probe lwlock__acquire(const char *tranche, unsigned mode);
    probe lwlock__acquire__or__wait(const char *tranche, unsigned mode);
    probe lwlock__acquire__or__wait__fail(const char *tranche, unsigned mode);
    probe lwlock__condacquire(const char *tranche, unsigned mode);
    probe lwlock__condacquire__fail(const char *tranche, unsigned mode);
    probe lwlock__wait__start(const char *tranche, unsigned mode);
    probe lwlock__wait__done(const char *tranche, unsigned mode);
    probe lwlock__release(const char *tranche);
        probe lock__wait__start(unsigned field1, unsigned field2, unsigned field3, unsigned field4, unsigned type, int
        mode);
    probe lock__wait__done(unsigned field1, unsigned field2, unsigned field3, unsigned field4, unsigned type, int mode);
    probe query__start(const char *query);
    probe query__done(const char *query);
    probe query__parse__start(const char *query);
    probe query__parse__done(const char *query);
    probe query__rewrite__start(const char *query);
    probe query__rewrite__done(const char *query);
    probe query__plan__start();
    probe query__plan__done();
    probe query__execute__start();
    probe query__execute__done();
    probe statement__status(const char *status);
    probe sort__start(int kind, bool unique, int keys, int memory, int random, int parallel);
    probe sort__done(int external, long used);
        probe buffer__read__start(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned relation,
        int backend);
        probe buffer__read__done(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned relation,
        int backend, bool hit);
        probe buffer__extend__start(int fork, unsigned tablespace, unsigned database, unsigned relation, int backend,
        unsigned blocks);
        probe buffer__extend__done(int fork, unsigned tablespace, unsigned database, unsigned relation, int backend,
        unsigned blocks, unsigned first);
    probe buffer__flush__start(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned relation);
    probe buffer__flush__done(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned relation);
        probe buffer__write__dirty__start(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned
        relation);
        probe buffer__write__dirty__done(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned
        relation);
    probe buffer__checkpoint__start(int flags);
    probe buffer__checkpoint__sync__start();
    probe buffer__checkpoint__done();
    probe buffer__sync__start(int buffers, int dirty);
    probe buffer__sync__written(int buffer);
    probe buffer__sync__done(int buffers, int written, int dirty);
    probe deadlock__found();
    probe checkpoint__start(int flags);
    probe checkpoint__done(int written, int buffers, int added, int removed, int recycled);
    probe clog__checkpoint__start(bool shutdown);
    probe clog__checkpoint__done(bool shutdown);
    probe subtrans__checkpoint__start(bool shutdown);
    probe subtrans__checkpoint__done(bool shutdown);
    probe multixact__checkpoint__start(bool shutdown);
    probe multixact__checkpoint__done(bool shutdown);
    probe twophase__checkpoint__start();
    probe twophase__checkpoint__done();
        probe smgr__md__read__start(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned
        relation, int backend);
        probe smgr__md__read__done(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned
        relation, int backend, int bytes, size_t wanted);
        probe smgr__md__write__start(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned
        relation, int backend);
        probe smgr__md__write__done(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned
        relation, int backend, int bytes, size_t wanted);
    probe wal__insert(unsigned char manager, unsigned char flags);
    probe wal__switch();
    probe wal__buffer__write__dirty__start();
    probe wal__buffer__write__dirty__done();
};

/* PostgreSQL until 15 */
provider postgresql {
        probe buffer__read__start(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned relation,
        int backend, bool extend);
        probe buffer__read__done(int fork, unsigned block, unsigned tablespace, unsigned database, unsigned relation,
        int backend, bool extend, bool hit);
    probe sort__start(int kind, bool unique, int keys, int memory, int random);
    probe xlog__insert(unsigned char manager, unsigned char flags);
    probe xlog__switch();
};

/* MySQL 5.5 to 5.7, and MariaDB until 10.0: DTrace Probe Reference, include/probes_mysql.d.base */
provider mysql {
    probe connection__start(unsigned long connection, const char *user, const char *host);
    probe connection__done(int status, unsigned long connection);
    probe command__start(unsigned long connection, int command, const char *user, const char *host);
    probe command__done(int status);
        probe query__start(const char *query, unsigned long connection, const char *database, const char *user, const
        char *host);
    probe query__done(int status);
    probe query__parse__start(const char *query);
    probe query__parse__done(int status);
    probe query__cache__hit(const char *query, unsigned long rows);
    probe query__cache__miss(const char *query);
        probe query__exec__start(const char *query, unsigned long connection, const char *database, const char *user,
        const char *host, int type);
    probe query__exec__done(int status);
    probe insert__row__start(const char *database, const char *table);
    probe insert__row__done(int status);
    probe update__row__start(const char *database, const char *table);
    probe update__row__done(int status);
    probe delete__row__start(const char *database, const char *table);
    probe delete__row__done(int status);
    probe read__row__start(const char *database, const char *table, int scan);
    probe read__row__done(int status);
    probe index__read__row__start(const char *database, const char *table);
    probe index__read__row__done(int status);
    probe handler__rdlock__start(const char *database, const char *table);
    probe handler__rdlock__done(int status);
    probe handler__wrlock__start(const char *database, const char *table);
    probe handler__wrlock__done(int status);
    probe handler__unlock__start(const char *database, const char *table);
    probe handler__unlock__done(int status);
    probe filesort__start(const char *database, const char *table);
    probe filesort__done(int status, unsigned long rows);
    probe select__start(const char *query);
    probe insert__start(const char *query);
    probe insert__select__start(const char *query);
    probe update__start(const char *query);
    probe multi__update__start(const char *query);
    probe delete__start(const char *query);
    probe multi__delete__start(const char *query);
    probe select__done(int status, unsigned long rows);
    probe insert__done(int status, unsigned long rows);
    probe insert__select__done(int status, unsigned long rows);
    probe delete__done(int status, unsigned long rows);
    probe multi__delete__done(int status, unsigned long rows);
    probe update__done(int status, unsigned long matched, unsigned long changed);
    probe multi__update__done(int status, unsigned long matched, unsigned long changed);
    probe net__read__start();
    probe net__read__done(int status, unsigned long bytes);
    probe net__write__start(unsigned long bytes);
    probe net__write__done(int status);
    probe keycache__read__start(const char *path, unsigned long bytes, unsigned long used, unsigned long free);
    probe keycache__read__block(unsigned long bytes);
    probe keycache__read__hit();
    probe keycache__read__miss();
    probe keycache__read__done(unsigned long used, unsigned long free);
    probe keycache__write__start(const char *path, unsigned long bytes, unsigned long used, unsigned long free);
    probe keycache__write__block(unsigned long bytes);
    probe keycache__write__done(unsigned long used, unsigned long free);
};

/* libvirt, which passes each argument as a word: src/libvirt_probes.d, src/qemu/libvirt_qemu_probes.d */
provider libvirt {
    probe event_glib_add_handle(long watch, long fd, long events, void *callback, void *opaque, void *free);
    probe event_glib_update_handle(long watch, long events);
    probe event_glib_remove_handle(long watch);
    probe event_glib_add_timeout(long timer, long milliseconds, void *callback, void *opaque, void *free);
    probe event_glib_update_timeout(long timer, long milliseconds);
    probe event_glib_remove_timeout(long timer);
    probe event_glib_remove_handle_idle(long watch, void *free, void *opaque);
    probe event_glib_dispatch_handle(long watch, long events, void *callback, void *opaque);
    probe event_glib_remove_timeout_idle(long timer, void *free, void *opaque);
    probe event_glib_dispatch_timeout(long timer, void *callback, void *opaque);
    probe event_poll_add_handle(long watch, long fd, long events, void *callback, void *opaque, void *free);
    probe event_poll_update_handle(long watch, long events);
    probe event_poll_remove_handle(long watch);
    probe event_poll_add_timeout(long timer, long milliseconds, void *callback, void *opaque, void *free);
    probe event_poll_update_timeout(long timer, long milliseconds);
    probe event_poll_remove_timeout(long timer);
    probe event_poll_dispatch_handle(long watch, long events);
    probe event_poll_purge_handle(long watch);
    probe event_poll_dispatch_timeout(long timer);
    probe event_poll_purge_timeout(long timer);
    probe event_poll_run(long fds, long milliseconds);
    probe object_new(void *object, const char *class);
    probe object_ref(void *object);
    probe object_unref(void *object);
    probe object_dispose(void *object);
    probe rpc_socket_new(void *socket, long fd, long error_fd, long pid, const char *local, const char *remote);
    probe rpc_socket_dispose(void *socket);
    probe rpc_socket_send_fd(void *socket, long fd);
    probe rpc_socket_recv_fd(void *socket, long fd);
    probe rpc_server_client_new(void *client, void *socket);
    probe rpc_server_client_dispose(void *client);
        probe rpc_server_client_msg_tx_queue(void *client, long length, long program, long version, long procedure,
        long type, long status, long serial);
        probe rpc_server_client_msg_rx(void *client, long length, long program, long version, long procedure, long
        type, long status, long serial);
    probe rpc_client_new(void *client, void *socket);
    probe rpc_client_dispose(void *client);
        probe rpc_client_msg_tx_queue(void *client, long length, long program, long version, long procedure, long
        type, long status, long serial);
        probe rpc_client_msg_rx(void *client, long length, long program, long version, long procedure, long type, long
        status, long serial);
    probe rpc_server_client_auth_allow(void *client, long type, const char *identity);
    probe rpc_server_client_auth_deny(void *client, long type, const char *identity);
    probe rpc_server_client_auth_fail(void *client, long type);
        probe rpc_tls_context_new(void *context, const char *ca, const char *crl, const char *certificate, const char
        *key, long checks, long requires, long server);
    probe rpc_tls_context_dispose(void *context);
    probe rpc_tls_context_session_allow(void *context, void *session, const char *name);
    probe rpc_tls_context_session_deny(void *context, void *session, const char *name);
    probe rpc_tls_context_session_fail(void *context, void *session);
    probe rpc_tls_session_new(void *session, void *context, const char *host, long server);
    probe rpc_tls_session_dispose(void *session);
    probe rpc_tls_session_handshake_pass(void *session);
    probe rpc_tls_session_handshake_fail(void *session);
    probe rpc_keepalive_new(void *keepalive, void *client);
    probe rpc_keepalive_dispose(void *keepalive);
    probe rpc_keepalive_start(void *keepalive, void *client, long interval, long count);
    probe rpc_keepalive_stop(void *keepalive, void *client);
    probe rpc_keepalive_send(void *keepalive, void *client, long program, long version, long procedure);
    probe rpc_keepalive_received(void *keepalive, void *client, long program, long version, long procedure);
    probe rpc_keepalive_timeout(void *keepalive, void *client, long left, long idle);
    probe qemu_monitor_new(void *monitor, long fd);
    probe qemu_monitor_ref(void *monitor);
    probe qemu_monitor_unref(void *monitor);
    probe qemu_monitor_close(void *monitor);
    probe qemu_monitor_send_msg(void *monitor, const char *message, long fd);
    probe qemu_monitor_recv_reply(void *monitor, const char *reply);
    probe qemu_monitor_recv_event(void *monitor, const char *event);
    probe qemu_monitor_io_process(void *monitor, const char *buffer, unsigned long length);
    probe qemu_monitor_io_read(void *monitor, const char *buffer, unsigned long length, long result, long error);
    probe qemu_monitor_io_write(void *monitor, const char *buffer, unsigned long length, long result, long error);
    probe qemu_monitor_io_send_fd(void *monitor, long fd, long result, long error);
};

/* QEMU built with --enable-trace-backends=dtrace: of its thousands of events those of disks and KVM, from
   trace-events in block/, accel/kvm/ and hw/block/ */
provider qemu {
    probe bdrv_open_common(void *bs, const char *filename, int flags, const char *format);
    probe bdrv_lock_medium(void *bs, bool locked);
    probe blk_co_preadv(void *blk, void *bs, int64_t offset, int64_t bytes, unsigned flags);
    probe blk_co_pwritev(void *blk, void *bs, int64_t offset, int64_t bytes, unsigned flags);
    probe bdrv_co_preadv(void *bs, int64_t offset, int64_t bytes, unsigned flags);
    probe bdrv_co_pwritev(void *bs, int64_t offset, int64_t bytes, unsigned flags);
    probe bdrv_co_pwrite_zeroes(void *bs, int64_t offset, int64_t bytes, unsigned flags);
    probe blk_root_attach(void *child, void *blk, void *bs);
    probe blk_root_detach(void *child, void *blk, void *bs);
    probe virtio_blk_req_complete(void *device, void *request, int status);
    probe virtio_blk_rw_complete(void *device, void *request, int result);
    probe virtio_blk_handle_read(void *device, void *request, uint64_t sector, size_t sectors);
    probe virtio_blk_handle_write(void *device, void *request, uint64_t sector, size_t sectors);
    probe qcow2_writev_start_req(void *coroutine, int64_t offset, int64_t bytes);
    probe qcow2_writev_done_req(void *coroutine, int result);
    probe qcow2_cache_get(void *coroutine, int cache, uint64_t offset, bool reads);
    probe qcow2_cache_flush(void *coroutine, int cache);
    probe kvm_ioctl(unsigned long type, void *argument);
    probe kvm_vm_ioctl(unsigned long type, void *argument);
    probe kvm_vcpu_ioctl(int cpu, unsigned long type, void *argument);
    probe kvm_device_ioctl(int fd, unsigned long type, void *argument);
    probe kvm_run_exit(int cpu, uint32_t reason);
    probe kvm_run_exit_system_event(int cpu, uint32_t type);
    probe kvm_init_vcpu(int cpu, unsigned long id);
    probe kvm_create_vcpu(int cpu, unsigned long id, int fd);
    probe kvm_destroy_vcpu(int cpu, unsigned long id);
    probe kvm_failed_reg_get(uint64_t id, const char *message);
    probe kvm_failed_reg_set(uint64_t id, const char *message);
    probe kvm_irqchip_add_msi_route(const char *name, int vector, int irq);
    probe kvm_irqchip_update_msi_route(int irq);
    probe kvm_irqchip_release_virq(int irq);
    probe kvm_clear_dirty_log(uint32_t slot, uint64_t start, uint32_t size);
    probe kvm_dirty_ring_full(int cpu);
    probe kvm_dirty_ring_page(int cpu, uint32_t slot, uint64_t offset);
    probe kvm_dirty_ring_reap(uint64_t pages, int64_t microseconds);
};

/* Ruby built with --enable-dtrace: doc/dtrace_probes.rdoc */
provider ruby {
    probe method__entry(const char *class, const char *method, const char *file, int line);
    probe method__return(const char *class, const char *method, const char *file, int line);
    probe cmethod__entry(const char *class, const char *method, const char *file, int line);
    probe cmethod__return(const char *class, const char *method, const char *file, int line);
    probe require__entry(const char *required, const char *file, int line);
    probe require__return(const char *required, const char *file, int line);
    probe find__require__entry(const char *required, const char *file, int line);
    probe find__require__return(const char *required, const char *file, int line);
    probe load__entry(const char *required, const char *file, int line);
    probe load__return(const char *required, const char *file, int line);
    probe raise(const char *class, const char *file, int line);
    probe object__create(const char *class, const char *file, int line);
    probe array__create(long length, const char *file, int line);
    probe hash__create(long length, const char *file, int line);
    probe string__create(long length, const char *file, int line);
    probe symbol__create(const char *symbol, const char *file, int line);
    probe parse__begin(const char *file, int line);
    probe parse__end(const char *file, int line);
    probe gc__mark__begin();
    probe gc__mark__end();
    probe gc__sweep__begin();
    probe gc__sweep__end();
    probe method__cache__clear(const char *class, const char *file, int line);
};

/* Node.js until 18 built with --with-dtrace: src/node_provider.d */
provider node {
    probe net__server__connection(void *connection, const char *remote, int port, int fd);
    probe net__stream__end(void *connection, const char *remote, int port, int fd);
        probe http__server__request(void *request, void *connection, const char *remote, int port, const char *method,
        const char *url, int fd);
    probe http__server__response(void *connection, const char *remote, int port, int fd);
        probe http__client__request(void *request, void *connection, const char *remote, int port, const char *method,
        const char *url, int fd);
    probe http__client__response(void *connection, const char *remote, int port, int fd);
    probe gc__start(int type, int flags, void *isolate);
    probe gc__done(int type, int flags, void *isolate);
};

/* OpenJDK: src/hotspot/os/posix/dtrace/hotspot.d. Nothing ends its texts: each has as many bytes as the argument
   behind it says */
provider hotspot {
    probe class__loaded(const char *name, int name_length, void *loader, bool shared);
    probe class__unloaded(const char *name, int name_length, void *loader, bool shared);
    probe class__initialization__required(const char *name, int name_length, void *loader, int thread);
    probe class__initialization__recursive(const char *name, int name_length, void *loader, int thread, bool waited);
    probe class__initialization__concurrent(const char *name, int name_length, void *loader, int thread, bool waited);
    probe class__initialization__erroneous(const char *name, int name_length, void *loader, int thread, bool waited);
        probe class__initialization__super__failed(const char *name, int name_length, void *loader, int thread, bool
        waited);
    probe class__initialization__clinit(const char *name, int name_length, void *loader, int thread, bool waited);
    probe class__initialization__error(const char *name, int name_length, void *loader, int thread, bool waited);
    probe class__initialization__end(const char *name, int name_length, void *loader, int thread, bool waited);
    probe vm__init__begin();
    probe vm__init__end();
    probe vm__shutdown();
    probe vmops__request(const char *operation, size_t operation_length, int mode);
    probe vmops__begin(const char *operation, size_t operation_length, int mode);
    probe vmops__end(const char *operation, size_t operation_length, int mode);
    probe gc__begin(bool full);
    probe gc__end();
        probe mem__pool__gc__begin(const char *manager, size_t manager_length, const char *pool, size_t pool_length,
        size_t initial, size_t used, size_t committed, size_t most);
        probe mem__pool__gc__end(const char *manager, size_t manager_length, const char *pool, size_t pool_length,
        size_t initial, size_t used, size_t committed, size_t most);
    probe thread__start(const char *name, int name_length, long id, unsigned long native_id, bool daemon);
    probe thread__stop(const char *name, int name_length, long id, unsigned long native_id, bool daemon);
    probe thread__sleep__begin(int64_t time);
    probe thread__sleep__end(int interrupted);
    probe thread__yield();
    probe thread__park__begin(void *parker, int absolute, int64_t time);
    probe thread__park__end(void *parker);
    probe thread__unpark(void *parker);
        probe method__compile__begin(const char *compiler, size_t compiler_length, const char *class, int
        class_length, const char *method, int method_length, const char *signature, int signature_length);
        probe method__compile__end(const char *compiler, size_t compiler_length, const char *class, int class_length,
        const char *method, int method_length, const char *signature, int signature_length, bool installed);
        probe compiled__method__load(const char *class, int class_length, const char *method, int method_length, const
        char *signature, int signature_length, void *code, int size);
        probe compiled__method__unload(const char *class, int class_length, const char *method, int method_length,
        const char *signature, int signature_length);
    probe monitor__contended__enter(long thread, void *monitor, const char *class, int class_length);
    probe monitor__contended__entered(long thread, void *monitor, const char *class, int class_length);
    probe monitor__contended__exit(long thread, void *monitor, const char *class, int class_length);
    probe monitor__waited(long thread, void *monitor, const char *class, int class_length);
    probe monitor__notify(long thread, void *monitor, const char *class, int class_length);
    probe monitor__notifyAll(long thread, void *monitor, const char *class, int class_length);
    probe monitor__wait(long thread, void *monitor, const char *class, int class_length, long timeout);
    probe object__alloc(long thread, const char *class, int class_length, size_t size);
        probe method__entry(long thread, const char *class, int class_length, const char *method, int method_length,
        const char *signature, int signature_length);
        probe method__return(long thread, const char *class, int class_length, const char *method, int method_length,
        const char *signature, int signature_length);
};

/* OpenJDK: src/hotspot/os/posix/dtrace/hs_private.d */
provider hs_private {
    probe safepoint__begin();
    probe safepoint__end();
};

/* PHP built with --enable-dtrace: Zend/zend_dtrace.d */
provider php {
    probe exception__caught(const char *class);
    probe exception__thrown(const char *class);
    probe request__startup(const char *file, const char *uri, const char *method);
    probe request__shutdown(const char *file, const char *uri, const char *method);
    probe compile__file__entry(const char *file, const char *translated);
    probe compile__file__return(const char *file, const char *translated);
    probe error(const char *message, const char *file, unsigned line);
    probe execute__entry(const char *file, int line);
    probe execute__return(const char *file, int line);
    probe function__entry(const char *function, const char *file, int line, const char *class, const char *scope);
    probe function__return(const char *function, const char *file, int line, const char *class, const char *scope);
};

/* Perl built with -Dusedtrace: pod/perldtrace.pod */
provider perl {
    probe sub__entry(const char *sub, const char *file, int line, const char *package);
    probe sub__return(const char *sub, const char *file, int line, const char *package);
    probe phase__change(const char *new_phase, const char *old_phase);
    probe op__entry(const char *op);
    probe loading__file(const char *path);
    probe loaded__file(const char *path);
};

/* Tcl built with --enable-dtrace: generic/tclDTrace.d */
provider tcl {
    probe proc__entry(const char *name, int count, void *words);
    probe cmd__entry(const char *name, int count, void *words);
    probe proc__return(const char *name, int code);
    probe cmd__return(const char *name, int code);
    probe proc__result(const char *name, int code, const char *result, void *object);
    probe cmd__result(const char *name, int code, const char *result, void *object);
    probe inst__start(const char *name, int depth, void *stack);
    probe inst__done(const char *name, int depth, void *stack);
    probe obj__create(void *object);
    probe obj__free(void *object);
};

/* SSSD: src/systemtap/sssd.stp.in */
provider sssd {
    probe sysdb_transaction_start(int nesting);
    probe sysdb_transaction_commit_before(int nesting);
    probe sysdb_transaction_commit_after(int nesting);
    probe sysdb_transaction_cancel(int nesting);
    probe sdap_get_generic_ext_send(const char *base, int scope, const char *filter, void *attributes);
    probe sdap_get_generic_ext_recv(const char *base, int scope, const char *filter);
    probe sdap_parse_entry(const char *attribute, const char *value, size_t value_length);
    probe sdap_parse_entry_done();
    probe sdap_deref_search_send(const char *base, const char *attribute);
    probe sdap_deref_search_recv(const char *base, const char *attribute);
    probe sdap_acct_req_send(unsigned entry, unsigned filter, const char *value, const char *extra);
    probe sdap_acct_req_recv(unsigned entry, unsigned filter, const char *value, const char *extra);
    probe sdap_search_user_send(const char *filter);
    probe sdap_search_user_save_begin(const char *filter);
    probe sdap_search_user_save_end(const char *filter);
    probe sdap_search_user_recv(const char *filter);
    probe sdap_nested_group_process_send(const char *dn);
    probe sdap_nested_group_process_recv(const char *dn);
    probe dp_req_send(const char *domain, const char *request, unsigned target, unsigned method);
    probe dp_req_done(const char *request, unsigned target, unsigned method, int result, const char *error);
};

/* memcached built with --enable-dtrace: memcached_dtrace.d */
provider memcached {
    probe conn__allocate(int connection);
    probe conn__release(int connection);
    probe conn__create(void *connection);
    probe conn__destroy(void *connection);
    probe conn__dispatch(int connection, int64_t thread);
    probe slabs__allocate(int size, int class, int slab, void *memory);
    probe slabs__allocate__failed(int size, int class);
    probe slabs__slabclass__allocate(int class);
    probe slabs__slabclass__allocate__failed(int class);
    probe slabs__free(int size, int class, void *memory);
    probe assoc__find(const char *key, int key_length, int depth);
    probe assoc__insert(const char *key, int key_length);
    probe assoc__delete(const char *key, int key_length);
    probe item__link(const char *key, int key_length, int size);
    probe item__unlink(const char *key, int key_length, int size);
    probe item__remove(const char *key, int key_length, int size);
    probe item__update(const char *key, int key_length, int size);
        probe item__replace(const char *old_key, int old_key_length, int old_size, const char *new_key, int
        new_key_length, int new_size);
    probe process__command__start(int connection, const void *request, int size);
    probe process__command__end(int connection, const void *response, int size);
    probe command__get(int connection, const char *key, int key_length, int size, int64_t cas);
    probe command__add(int connection, const char *key, int key_length, int size, int64_t cas);
    probe command__set(int connection, const char *key, int key_length, int size, int64_t cas);
    probe command__replace(int connection, const char *key, int key_length, int size, int64_t cas);
    probe command__prepend(int connection, const char *key, int key_length, int size, int64_t cas);
    probe command__append(int connection, const char *key, int key_length, int size, int64_t cas);
    probe command__touch(int connection, const char *key, int key_length, int size, int64_t cas);
    probe command__cas(int connection, const char *key, int key_length, int size, int64_t cas);
    probe command__incr(int connection, const char *key, int key_length, int64_t value);
    probe command__decr(int connection, const char *key, int key_length, int64_t value);
    probe command__delete(int connection, const char *key, int key_length);
};
