#ifndef SHOP_H
#define SHOP_H

/* What `count` pieces cost, in cents, or -1 if there is no such thing. */
long shop_order(const char *what, int count);

#endif
