# Where the native library came out of an archive there may be no Rust toolchain: scripts/matrix.
without_cargo = if System.find_executable("cargo"), do: [], else: [:cargo]
# A task of Mix waits for the locks of builds beside it.
ExUnit.start(exclude: without_cargo, timeout: 300_000)
