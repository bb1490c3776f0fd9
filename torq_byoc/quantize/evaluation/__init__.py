"""Running float and QDQ models in numpy, and measuring how far two runs are apart."""
