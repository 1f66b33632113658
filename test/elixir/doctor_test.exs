defmodule InetRdma.DoctorTest do
  # Not async: the option is the environment of the application, which is one for all.
  use ExUnit.Case

  import ExUnit.CaptureIO

  @compile {:no_warn_undefined, :inet_rdma_doctor}

  alias Mix.Tasks.InetRdma.Doctor

  setup do
    on_exit(fn -> Application.delete_env(:inet_rdma, :fabric) end)
  end

  setup_all do
    :ok = :inet_rdma.load_tools()
  end

  test "the report is a map with a verdict and findings" do
    assert %{leaves_tcp: true, this_host: :shm, findings: [_ | _] = findings} = :inet_rdma_doctor.report()
    for finding <- findings, do: assert(%{severity: _, about: _, text: _, fix: _} = finding)
  end

  test "the task prints a table and ends in order where links can leave TCP" do
    Application.put_env(:inet_rdma, :fabric, :shm)
    assert capture_io(fn -> Doctor.run([]) end) =~ "Links of this node can leave TCP within this host."
  end

  test "with --json the task prints one line of JSON" do
    Application.put_env(:inet_rdma, :fabric, :shm)
    assert ["{" <> rest] = lines(capture_io(fn -> Doctor.run(["--json"]) end))
    assert rest =~ ~s("leaves_tcp":true)
  end

  test "the task ends with status 1 where no node would start" do
    Application.put_env(:inet_rdma, :fabric, :pigeons)
    output = capture_io(fn -> assert catch_exit(Doctor.run([])) == {:shutdown, 1} end)
    assert output =~ "A node with these options does not start."
    assert output =~ "fabric has the value pigeons"
  end

  test "an option that is not known is refused" do
    assert_raise OptionParser.ParseError, fn -> Doctor.run(["--yaml"]) end
  end

  defp lines(output), do: String.split(output, "\n", trim: true)
end
