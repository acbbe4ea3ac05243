/* A server that parses, asks a database, and answers. */
provider server {
    probe request__start(int id, char *path);
    probe request__done(int id, int status);
    probe parse__begin(int id);
    probe parse__end(int id, unsigned long length);
    probe query__start(int id, char *text);
    probe query__done(int id, int rows);
    probe cache__miss(char *key);
};
