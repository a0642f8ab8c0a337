"""HDF5: the only place that imports h5py."""
