defmodule InetRdma.PackageTest do
  use ExUnit.Case, async: true

  @moduletag :cargo

  alias InetRdma.Test.Os

  @max_bytes 200 * 1024

  setup_all do
    %{files: packaged(Mix.Project.config()[:package][:files])}
  end

  test "the package says its licence, description and links" do
    config = Mix.Project.config()
    assert config[:package][:licenses] == ["Apache-2.0"]
    assert config[:description] =~ "RDMA"
    assert map_size(config[:package][:links]) > 0
    for {_name, address} <- config[:package][:links], do: assert(address =~ ~r/^https:/)
  end

  test "each pattern of the package matches a file" do
    for pattern <- Mix.Project.config()[:package][:files] do
      assert packaged([pattern]) != [], "#{pattern} matches nothing"
    end
  end

  test "nothing that was built, no measurements, no tests of nodes and no large file is packaged", %{files: files} do
    for file <- files do
      refute Path.extname(file) in ~w(.so .beam), file
      assert hd(Path.split(file)) not in ~w(_build bench test deps), file
      refute "target" in Path.split(file), file
      assert File.stat!(Path.join(Os.root(), file)).size <= @max_bytes, "#{file} is larger than #{@max_bytes} bytes"
    end
  end

  test "nothing that git ignores is packaged", %{files: files} do
    tracked = Os.run!("git", ~w(ls-files --cached --others --exclude-standard), cd: Os.root())
    assert files -- String.split(tracked, "\n") == []
  end

  test "the extras of the documentation are packaged", %{files: files} do
    # The measured tables are there in a checkout only.
    pages = for extra <- Mix.Project.config()[:docs][:extras], is_binary(extra), do: extra
    assert "README.md" in pages
    assert pages -- files == []
  end

  # The copy has a fixed path and the tree's target directory: the third-party crates are there, and a check writes
  # metadata under names that contain a hash of the path, so it replaces nothing that was built from the tree.
  @tag timeout: 1_800_000
  test "Mix and Cargo build from a copy of the packaged files alone", %{files: files} do
    copy = Path.join(Os.root(), "_build/package")
    File.rm_rf!(copy)

    for file <- files do
      File.mkdir_p!(Path.dirname(Path.join(copy, file)))
      File.cp!(Path.join(Os.root(), file), Path.join(copy, file))
    end

    target = System.get_env("CARGO_TARGET_DIR", Path.join(Os.root(), "native/target"))
    manifest = ["--locked", "--manifest-path", Path.join(copy, "native/Cargo.toml")]
    Os.run!("cargo", ["check", "--workspace"] ++ manifest, env: [{"CARGO_TARGET_DIR", target}])
    assert "" == Os.run!(Path.join(copy, "scripts/build-native"), ["--check"])

    env = [{"MIX_ENV", "prod"}, {"MIX_BUILD_PATH", nil}]
    Os.run!("mix", ["do", "compile.erlang,", "compile.elixir,", "compile.inet_rdma_app"], cd: copy, env: env)
    from_copy = modules(Path.join(copy, "_build/prod/lib/inet_rdma"))
    from_tree = modules(Application.app_dir(:inet_rdma))
    of_tests = [InetRdma.Test.Archive, InetRdma.Test.Os, InetRdma.Test.Page, InetRdma.Test.Project, InetRdmaTest.Echo]
    assert from_tree -- from_copy == of_tests
    assert from_copy -- from_tree == []
  end

  # As Hex expands the list: wildcards first, then all that is in a directory.
  defp packaged(patterns) do
    patterns
    |> Enum.flat_map(&Path.wildcard(Path.join(Os.root(), &1)))
    |> Enum.flat_map(&files_in/1)
    |> Enum.map(&Path.relative_to(&1, Os.root()))
    |> Enum.uniq()
  end

  defp files_in(path) do
    if File.dir?(path), do: path |> File.ls!() |> Enum.flat_map(&files_in(Path.join(path, &1))), else: [path]
  end

  defp modules(dir) do
    {:ok, [{:application, :inet_rdma, keys}]} = :file.consult(Path.join(dir, "ebin/inet_rdma.app"))
    keys[:modules]
  end
end
