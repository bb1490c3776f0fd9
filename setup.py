"""Packaging of torq_byoc; dependency ranges are the tested ones."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="torq-byoc",
    version="0.1.0",
    description="Apache TVM (Relax) backend and bit-exact simulator for Torq-class NPUs",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.13",
    packages=find_packages(include=["torq_byoc", "torq_byoc.*"]),
    package_data={"torq_byoc": ["data/*", "report/templates/*"]},
    install_requires=[
        "apache-tvm>=0.27,<0.28",
        "numpy>=2.0,<3",
        "ml_dtypes>=0.5,<1",
        "onnx>=1.21,<2",
        "click>=8.1,<9",
        "tqdm>=4.66,<5",
        "rich>=13.7,<16",
        "jinja2>=3.1,<4",
        "msgspec>=0.18,<1",
        "PyYAML>=6.0,<7",
        "threadpoolctl>=3.1,<4",
        "wrapt>=1.16,<3",
    ],
    extras_require={
        "check": ["onnxruntime>=1.20,<2"],
        "test": [
            "onnxruntime>=1.20,<2",
            "hypothesis>=6.100,<7",
            "mypy>=2.3,<3",
            "optuna>=4,<5",
            "pytest>=8,<10",
            "pytest-xdist>=3.5,<4",
            "ruff>=0.17,<0.18",
            "scikit-learn>=1.4,<2",
        ],
        "train": ["scikit-learn>=1.4,<2"],
        "tune": ["optuna>=4,<5"],
    },
    entry_points={"console_scripts": ["torq = torq_byoc.cli.main:main"]},
)
