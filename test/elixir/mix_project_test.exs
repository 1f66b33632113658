defmodule InetRdma.MixProjectTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.{Os, Project}

  @tag timeout: 300_000
  test "a Mix project that names us as a path dependency forms a cluster" do
    Project.mix_cluster!(Os.root())
  end
end
