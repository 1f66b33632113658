defmodule InetRdma.DoctorTest do
  # Not async: the option is the environment of the application, which is one for all.
  use ExUnit.Case

  import ExUnit.CaptureIO

  alias Mix.Tasks.InetRdma.Doctor

  setup do
    on_exit(fn -> Application.delete_env(:inet_rdma, :fabric) end)
  end

  test "the report is a map with a verdict and findings" do
    assert %{can_run: true, this_host: :shm, findings: [_ | _] = findings} = InetRdma.doctor()
    for finding <- findings, do: assert(%{severity: _, about: _, text: _, fix: _} = finding)
  end

  test "the task prints a table and ends in order where a cluster could run" do
    Application.put_env(:inet_rdma, :fabric, :shm)
    assert capture_io(fn -> Doctor.run([]) end) =~ "A cluster could run on this host."
  end

  test "with --json the task prints one line of JSON" do
    Application.put_env(:inet_rdma, :fabric, :shm)
    assert [~s({"can_run":true,) <> _rest] = lines(capture_io(fn -> Doctor.run(["--json"]) end))
  end

  test "the task ends with status 1 where no node would start" do
    Application.put_env(:inet_rdma, :fabric, :pigeons)
    output = capture_io(fn -> assert catch_exit(Doctor.run([])) == {:shutdown, 1} end)
    assert output =~ "A cluster could not run here."
    assert output =~ "fabric has the value pigeons"
  end

  test "an option that is not known is refused" do
    assert_raise OptionParser.ParseError, fn -> Doctor.run(["--yaml"]) end
  end

  defp lines(output), do: String.split(output, "\n", trim: true)
end
