/*
 * An interpreter with four probes and its attributes in front of the provider.
 */
#pragma D attributes Evolving/Evolving/Common provider perl provider
#pragma D attributes Private/Private/Unknown provider perl module
#pragma D attributes Private/Private/Unknown provider perl function
#pragma D attributes Evolving/Evolving/Common provider perl name
#pragma D attributes Evolving/Evolving/Common provider perl args

provider perl {
	/* Sub-routine, file, line, and the package */
	probe sub__entry(const char *, const char *, int, const char *);
	probe sub__return(const char *, const char *, int, const char *);

	/* The new phase and the old one */
	probe phase__change(const char *, const char *);

	/* The name of an op */
	probe op__entry(const char *);

	probe loading__file(const char *);
	probe loaded__file(const char *)
};
