# usdtbuild 0.1.0: USDT_PROBES, probes in a project with Autoconf, where usdtbuild is installed.
# serial 1
#
# USDT_PROBES, in configure.ac after AC_PROG_CC and AC_PROG_CXX, gives whoever builds --enable-usdt=auto|yes|no (auto: with
# probes where usdtbuild is installed; yes: an error where it isn't; no: without), and the Makefiles
#   USDTBUILD    the program, or nothing
#   USDT         a conditional of Automake: whether there are probes
#   CC, CXX      with the launcher before them, from config.status on: configure's own tests run the plain compilers
AC_DEFUN([USDT_PROBES], [
AC_ARG_VAR([USDTBUILD], [the program usdtbuild, which makes probes])
AC_ARG_ENABLE([usdt],
  [AS_HELP_STRING([--enable-usdt=auto|yes|no], [USDT probes; auto, the default: where usdtbuild is installed])],
  [], [enable_usdt=auto])
AS_CASE([$enable_usdt],
  [no], [USDTBUILD=],
  [yes|auto], [AC_PATH_PROG([USDTBUILD], [usdtbuild])],
  [AC_MSG_ERROR([--enable-usdt=$enable_usdt: the values are auto, yes and no])])
AS_IF([test "$enable_usdt" = yes && test -z "$USDTBUILD"],
  [AC_MSG_ERROR([usdtbuild was not found, and --enable-usdt=yes wants probes: python3 -m pip install usdtbuild, or say where it is with USDTBUILD=PATH])])
AC_MSG_CHECKING([for USDT probes])
AS_IF([test -n "$USDTBUILD"], [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no, probes compile to nothing])])
m4_ifdef([AM_CONDITIONAL], [AM_CONDITIONAL([USDT], [test -n "$USDTBUILD"])])
AC_CONFIG_COMMANDS_PRE([
AS_IF([test -n "$USDTBUILD"], [
  CC="$USDTBUILD cc -- $CC"
  AS_IF([test -n "$CXX"], [CXX="$USDTBUILD cc -- $CXX"])])])
])
