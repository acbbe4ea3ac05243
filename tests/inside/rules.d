provider server {
	probe tick();
	probe request__start();
	probe request__done();
};
provider shop {
	probe tick();
	probe request__done();
};
