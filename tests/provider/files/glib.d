provider gobject {
	probe type__new(char * name, unsigned long parent_gtype, unsigned long gtype);
	probe object__new(void* object, unsigned long gtype);
	probe object__ref(void* object, unsigned long gtype, unsigned int old_refcount);
	probe signal__emit(unsigned int signal, unsigned int detail, void* object, unsigned long gtype);
	probe closure__invoke(void*,char*)
}

provider glib {
	probe mem__alloc(void*, unsigned int, unsigned int, unsigned int);
	probe slice__free(void*, unsigned long);
	probe timeout__add(void *context, unsigned int id, int priority, unsigned int interval, void *func, void *data);
}
