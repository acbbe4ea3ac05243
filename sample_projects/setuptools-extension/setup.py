from setuptools import Extension, setup

setup(
    ext_modules=[
        # The provider file stands among the sources that use its probes.
        Extension("wordcount._core", ["src/wordcount/_core.c", "wordcount.d"]),
    ],
)
