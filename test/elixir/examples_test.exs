defmodule InetRdma.ExamplesTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  @ebin Path.dirname(to_string(:code.which(:inet_rdma)))
  @flags ["-pa", @ebin, "-proto_dist", "inet_rdma"]

  defp elixir(name, args) do
    carrier = Enum.join(@flags ++ ["-setcookie", "examples"], " ")
    ["--erl", carrier, "--sname", name | args]
  end

  defp erl(name, beams, args) do
    @flags ++ ["-pa", beams, "-sname", name, "-setcookie", "examples", "-noinput" | args]
  end

  @tag timeout: 600_000
  test "file_copy copies a file from another node, and verifies it" do
    dir = Os.scratch_dir()
    [there, here] = for name <- ~w(there here), do: Path.join(dir, name)
    File.write!(there, :rand.bytes(10_000_123))
    Os.run!("erlc", ["-o", dir, Path.join(Os.root(), "examples/file_copy.erl")])

    first = Os.node_name("copy_first")

    Os.start!("erl", erl(first, dir, ["-eval", "io:format(\"ready~n\")."]))
    |> Os.await_line!(~r/^ready$/)

    copy = fn from, to ->
      Os.run!("erl", erl(Os.node_name("copy_second"), dir, ["-run", "file_copy", "main", first, from, to]))
    end

    assert copy.(there, here) =~ ~r/copied 10000123 bytes, hash verified, \d+\.\d MB\/s/
    assert File.read!(here) == File.read!(there)

    # Nothing is a file, too.
    File.write!(there, "")
    assert copy.(there, here) =~ "copied 0 bytes, hash verified"
    assert File.read!(here) == ""

    args = erl(Os.node_name("copy_third"), dir, ["-run", "file_copy", "main", first, there <> "?", here])
    assert {output, 1} = System.cmd("erl", args, stderr_to_stdout: true)
    assert output =~ "not copied: no such file or directory"
  end

  @tag timeout: 600_000
  test "tensor_exchange sums up two tensors and prints rates" do
    script = Path.join(Os.root(), "examples/tensor_exchange.exs")
    first = Os.node_name("tensor_first")
    waiting = Os.start!("elixir", elixir(first, [script, "wait"]))
    Os.await_line!(waiting, ~r/^ready$/)

    output = Os.run!("elixir", elixir(Os.node_name("tensor_second"), [script, first]))
    assert output =~ "all-reduce of 65536 floats: right"
    assert output =~ ~r/exchange, posted \d+ MB\/s each way/
    assert output =~ ~r/exchange, blocking \d+ MB\/s each way/
    assert output =~ ~r/received directly \d+\.\d %/
    assert {0, _lines} = Os.await_exit!(waiting, 60_000)
  end
end
