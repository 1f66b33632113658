# Where the native library came out of an archive there may be no Rust toolchain: scripts/matrix.
without_cargo = if System.find_executable("cargo"), do: [], else: [:cargo]
ExUnit.start(exclude: without_cargo)
