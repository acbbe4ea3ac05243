provider victim {
  probe tick(int number);
  probe text(char *text);
};
