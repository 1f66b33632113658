defmodule InetRdma.Test.Os do
  @moduledoc """
  Programs as processes of the operating system: run to their end, or started and watched line by line.
  """

  import ExUnit.Assertions, only: [flunk: 1]
  import ExUnit.Callbacks, only: [on_exit: 1]

  @root Path.expand("../../..", __DIR__)

  # A node that dies leaves no crash dump in the tree.
  @env [{"ERL_CRASH_DUMP_SECONDS", "0"}]

  @doc "The root of the source tree."
  def root, do: @root

  @doc "A fresh directory that goes when the test does."
  def scratch_dir do
    dir = Path.join(System.tmp_dir!(), "inet_rdma_test_#{System.pid()}_#{System.unique_integer([:positive])}")
    File.mkdir_p!(dir)
    on_exit(fn -> File.rm_rf!(dir) end)
    dir
  end

  @doc "A short node name that no other run of the tests uses at the same time."
  def node_name(word) do
    {:ok, host} = :inet.gethostname()
    short = host |> to_string() |> String.split(".") |> hd()
    "#{word}_#{System.pid()}_#{System.unique_integer([:positive])}@#{short}"
  end

  @doc "Arguments of erl for a node of this name, whose links move at once."
  def node_args(name, carrier, cookie) do
    ["-noinput", "-proto_dist", carrier, "-inet_rdma", "move", "eager", "-sname", name, "-setcookie", cookie]
  end

  @doc "Runs a program. Gives its output, or fails the test with it."
  def run!(program, args, options \\ []) do
    options = Keyword.update(options, :env, @env, &(@env ++ &1))

    case System.cmd(program, args, [stderr_to_stdout: true] ++ options) do
      {output, 0} -> output
      {output, status} -> flunk("#{program} #{Enum.join(args, " ")} ended with #{status}:\n#{output}")
    end
  end

  @doc """
  Starts a program that stays. It is killed when the test ends, however the test ends.
  """
  def start!(program, args, options \\ []) do
    env = for {name, value} <- @env ++ Keyword.get(options, :env, []), do: {to_charlist(name), to_charlist(value)}

    port =
      Port.open({:spawn_executable, System.find_executable(program) || flunk("no #{program} in PATH")}, [
        :binary,
        :exit_status,
        :stderr_to_stdout,
        {:line, 65_536},
        {:args, args},
        {:env, env},
        {:cd, Keyword.get(options, :cd, File.cwd!())}
      ])

    {:os_pid, pid} = Port.info(port, :os_pid)
    on_exit(fn -> System.cmd("kill", ["-KILL", to_string(pid)], stderr_to_stdout: true) end)
    port
  end

  @doc "Waits until the program has printed a line that matches, and gives the lines so far."
  def await_line!(port, pattern, timeout_ms \\ 30_000), do: await(port, pattern, deadline(timeout_ms), [])

  @doc "Waits until the program has ended, and gives its exit status and the lines since the last wait."
  def await_exit!(port, timeout_ms \\ 30_000), do: await(port, :exit, deadline(timeout_ms), [])

  defp await(port, wanted, deadline, lines) do
    receive do
      {^port, {:data, {_ending, line}}} ->
        lines = [line | lines]
        if wanted != :exit and line =~ wanted, do: Enum.reverse(lines), else: await(port, wanted, deadline, lines)

      {^port, {:exit_status, status}} when wanted == :exit ->
        {status, Enum.reverse(lines)}

      {^port, {:exit_status, status}} ->
        flunk("ended with #{status} before #{inspect(wanted)}:\n#{Enum.join(Enum.reverse(lines), "\n")}")
    after
      max(deadline - now(), 0) ->
        flunk("no #{inspect(wanted)} in time; so far:\n#{Enum.join(Enum.reverse(lines), "\n")}")
    end
  end

  defp deadline(timeout_ms), do: now() + timeout_ms
  defp now, do: System.monotonic_time(:millisecond)
end
