defmodule InetRdma.Tools do
  @moduledoc """
  The application `:inet_rdma_tools`: the doctor, certify and the reader of the flight recorder's files. It comes with
  the package, and `:inet_rdma.load_tools/0` loads it. A release has it by the step `add_to_release/1`.
  """

  @doc """
  A step of a release, after `:assemble`: copies the tools into the release.

      releases: [my_app: [steps: [:assemble, &InetRdma.Tools.add_to_release/1]]]
  """
  @spec add_to_release(Mix.Release.t()) :: Mix.Release.t()
  def add_to_release(%Mix.Release{} = release) do
    library = Path.join([release.path, "lib", "inet_rdma-#{release.applications.inet_rdma[:vsn]}"])
    _copied = File.cp_r!(Application.app_dir(:inet_rdma, "inet_rdma_tools"), Path.join(library, "inet_rdma_tools"))
    release
  end

  @doc false
  # For Mix tasks.
  @spec load!() :: :ok
  def load! do
    with {:error, :not_found} <- :inet_rdma.load_tools() do
      Mix.raise("the tools of inet_rdma are missing: mix deps.compile inet_rdma --force")
    end
  end
end
