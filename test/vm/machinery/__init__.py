"""Virtual machines with the kernel's software RDMA devices, for tests."""
