defmodule InetRdma.Test.Page do
  @moduledoc """
  The commands of the guides, as they stand there, so that a test runs what a reader copies.
  """

  import ExUnit.Assertions, only: [flunk: 1]
  import ExUnit.Callbacks, only: [on_exit: 1]

  alias InetRdma.Test.Os

  @doc "The pieces of code of a page: lines that are indented, up to an empty one."
  def pieces(page) do
    Path.join(Os.root(), page)
    |> File.read!()
    |> String.split("\n")
    |> Enum.chunk_by(&String.starts_with?(&1, "    "))
    |> Enum.filter(&match?(["    " <> _ | _], &1))
    |> Enum.map(fn lines -> Enum.map_join(lines, "\n", &String.replace_prefix(&1, "    ", "")) end)
  end

  @doc "The piece of a page that begins with these words."
  def piece!(page, words) do
    case Enum.filter(pieces(page), &String.starts_with?(&1, words)) do
      [piece] -> String.replace(piece, ~r/@(host|HOST)\b/, "@#{host()}")
      found -> flunk("#{page} has #{length(found)} pieces of code that begin with #{words}")
    end
  end

  @doc """
  The commands of a piece with prompts, `$ ` or those of a shell of Erlang, each with the text below it, which is its
  output.
  """
  def prompted(piece) do
    prompt = ~r/^(?:\$|(?:\([^)]*\))?\d+>) /m
    [_before | parts] = Regex.split(prompt, piece, trim: false)
    Enum.map(parts, &command_and_output/1)
  end

  # A command goes on in the next line while a quote is open.
  defp command_and_output(text) do
    lines = text |> String.trim_trailing() |> String.split("\n")
    count = Enum.find(1..length(lines), &closed?(Enum.take(lines, &1))) || length(lines)
    {command, output} = Enum.split(lines, count)
    {Enum.join(command, "\n"), output}
  end

  defp closed?(lines), do: lines |> Enum.join() |> String.graphemes() |> Enum.count(&(&1 == "'")) |> rem(2) == 0

  @doc "The environment of nodes with an EPMD of their own: the names on the pages are taken only once there."
  def epmd! do
    {:ok, socket} = :gen_tcp.listen(0, [])
    {:ok, port} = :inet.port(socket)
    :ok = :gen_tcp.close(socket)
    Os.start!("epmd", ["-port", to_string(port)])
    [{"ERL_EPMD_PORT", to_string(port)}, {"MIX_ENV", nil}, {"ERL_FLAGS", nil}]
  end

  @doc "Runs commands of a page in the shell, to their end."
  def run!(commands, options), do: Os.run!("sh", ["-ec", commands], options)

  @doc "Starts a command that stays, such as a node."
  def start!(command, options) do
    port = Os.start!("sh", ["-ec", "exec " <> String.replace_suffix(command, " &", "")], options)
    on_exit(fn -> if Port.info(port), do: Port.close(port) end)
    port
  end

  @doc "Evaluates an expression in the shell of a node that start!/2 has started, and waits for a line of output."
  def type!(port, expression, awaited) do
    Port.command(port, expression <> "\n")
    Os.await_line!(port, awaited)
  end

  def host do
    {:ok, host} = :inet.gethostname()
    host |> to_string() |> String.split(".") |> hd()
  end
end
