provider libvirt {
	# file: daemon/events.c
	# prefix: event
	probe event_poll_add_handle(int watch, int fd, int events, void *cb, void *opaque, void *ff);
	probe event_poll_update_handle(int watch, int events);
	probe event_poll_run(int nfds, int timeout);

	# file: daemon/object.c
	# prefix: object
	probe object_new(void *obj, const char *klassname);
	probe object_dispose(void *obj);

	# file: daemon/rpc.c
	probe rpc_server_client_msg_tx_queue(void *client, int len, int prog, int vers, int proc, int type, int status, int serial);
	probe rpc_tls_context_session_deny(void *ctxt, void *sess, const char *dname);
};
