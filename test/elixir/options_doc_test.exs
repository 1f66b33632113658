defmodule InetRdma.OptionsDocTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  test "docs/OPTIONS.md lists every option with the values, the unit and the default that hold" do
    assert documented() == Enum.map(:inet_rdma_options.list(), &row/1)
  end

  # | `key` | values | unit | `default` | per | meaning |, the only table of that width whose rows begin with code.
  defp documented do
    for "| `" <> _rest = line <- File.stream!(Path.join(Os.root(), "docs/OPTIONS.md")),
        [key, values, unit, default, _per, _meaning] <- [columns(line)] do
      {plain(key), plain(values), unit, plain(default)}
    end
  end

  defp columns(line) do
    line |> String.trim() |> String.trim("|") |> String.split("|") |> Enum.map(&String.trim/1)
  end

  defp plain(text), do: String.replace(text, "`", "")

  defp row({key, _reader, {:integer, min, max, unit}, default}) do
    {to_string(key), "#{min} to #{max}", to_string(unit), to_string(default)}
  end

  defp row({key, _reader, {:zero_or, min, max, unit}, default}) do
    {to_string(key), "0, #{min} to #{max}", to_string(unit), to_string(default)}
  end

  defp row({key, _reader, :directory, default}), do: {to_string(key), "absolute path", "", to_string(default)}

  defp row({key, _reader, :shared_directory, default}),
    do: {to_string(key), "none, an absolute path", "", to_string(default)}

  defp row({key, _reader, :congestion, default}),
    do: {to_string(key), "default, a name of the kernel", "", to_string(default)}

  defp row({key, _reader, {:users, max}, []}), do: {to_string(key), "#{max} at most", "user ids", "[]"}

  defp row({key, _reader, {:one_of, values}, default}) do
    {to_string(key), Enum.join(values, ", "), "", to_string(default)}
  end
end
