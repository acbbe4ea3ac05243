/* ----------
 *	Probes of a database server, in the way such a server declares them: types of its own by #define, so -C.
 *
 *	Some types follow the server's C code by hand and must be kept in step with it.
 * ----------
 */

#define LocalTransactionId unsigned int
#define LWLockMode int
#define LOCKMODE int
#define BlockNumber unsigned int
#define Oid unsigned int
#define ForkNumber int
#define bool unsigned char

provider postgresql {

	probe transaction__start(LocalTransactionId);
	probe transaction__commit(LocalTransactionId);
	probe transaction__abort(LocalTransactionId);

	probe lwlock__acquire(const char *, LWLockMode);
	probe lwlock__condacquire__fail(const char *, LWLockMode);

	/* The following probe declaration is for a lock of the heavy kind. */
	probe lock__wait__start(unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, LOCKMODE);

	probe query__parse__start(const char *);
	probe query__done(const char *);
	probe statement__status(const char *);

	probe sort__start(int, bool, int, int, bool, int);
	probe sort__done(bool, long);

	probe buffer__read__start(ForkNumber, BlockNumber, Oid, Oid, Oid, int, bool);
	probe buffer__flush__done(ForkNumber, BlockNumber, Oid, Oid, Oid);
	probe buffer__checkpoint__done();

	probe smgr__md__read__done(ForkNumber, BlockNumber, Oid, Oid, Oid, int, int, int);

	probe wal__switch();
};
