# 1 "probes.d"
# 1 "<built-in>"
# 1 "<command-line>"
# 1 "/usr/include/stdc-predef.h" 1 3 4
# 1 "<command-line>" 2
# 1 "probes.d"
# 1 "include/types.h" 1
typedef unsigned int Oid;
# 2 "probes.d" 2

provider dbase {
# 7 "probes.d"
 probe open(Oid, int);
};
