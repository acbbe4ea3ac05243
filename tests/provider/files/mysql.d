/*
  A server of the older kind: spaces before the names, upper and lower case, comments between the arguments.

  Nested groups of probes, each with a start and a done, 12 arguments at most.
*/

provider mysql {

  /* The connection's number; user@host */
  probe connection__start(unsigned long conn_id, char *user, char *host);
  probe connection__done(int status, unsigned long conn_id);

  probe command__start(unsigned long conn_id, int command /* enum of the protocol */, char *user,
                       char *host );
  probe command__done( int status );

  probe query__start(  char * query,
                       unsigned long conn_id,
                       char * db_name,
                       char * user,
                       char * host);

  probe keycache__read__start(char *filepath, int bytes, unsigned long mem_used, unsigned long mem_free);
  probe filesort__done(int status, unsigned long rows);
  probe insert__row__start(char *db, char *table);
  probe net__write__start(unsigned long bytes);
};

#pragma D attributes Evolving/Evolving/Common provider mysql provider
#pragma D attributes Evolving/Evolving/Common provider mysql module
#pragma D attributes Evolving/Evolving/Common provider mysql function
#pragma D attributes Evolving/Evolving/Common provider mysql name
#pragma D attributes Evolving/Evolving/Common provider mysql args
