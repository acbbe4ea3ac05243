# usdtbuild 0.2.0: USDT_PROBES, probes in a project with Autoconf whose header is in the repository.
# serial 2
#
# USDT_PROBES, in configure.ac, gives whoever builds --disable-usdt, with which the probes compile to nothing, and the
# Makefiles
#   USDTBUILD         the program that makes the header anew, or nothing where it isn't installed
#   HAVE_USDTBUILD    a conditional of Automake: whether it is
AC_DEFUN([USDT_PROBES], [
AC_ARG_VAR([USDTBUILD], [the program usdtbuild, which makes the header of probes])
AC_ARG_ENABLE([usdt], [AS_HELP_STRING([--disable-usdt], [without USDT probes])], [], [enable_usdt=yes])
AS_CASE([$enable_usdt],
  [no], [CPPFLAGS="$CPPFLAGS -DUSDT_DISABLE"],
  [yes], [],
  [AC_MSG_ERROR([--enable-usdt=$enable_usdt: the values are yes and no])])
AC_PATH_PROG([USDTBUILD], [usdtbuild])
m4_ifdef([AM_CONDITIONAL], [AM_CONDITIONAL([HAVE_USDTBUILD], [test -n "$USDTBUILD"])])
])
