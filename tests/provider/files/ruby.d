/* Keywords of other languages as probe names; a section comment for every probe. */
provider ruby {
  /*
     ruby:::method-entry(classname, methodname, filename, lineno);

     Fired when a method is entered.
       * `classname` the class
       * `methodname` the method
  */
  probe method__entry(const char *classname, const char *methodname, const char *filename, int lineno);
  probe raise(const char *classname, const char *filename, int lineno);
  probe array__create(long length, const char *filename, int lineno);
  probe require__entry(const char *rquirefile, const char *filename, int lineno);
  probe gc__mark__begin();
  probe error(string s); probe exit(); probe trace(const char *); probe probe();
};
