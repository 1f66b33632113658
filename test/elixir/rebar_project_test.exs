defmodule InetRdma.RebarProjectTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.{Os, Project}

  @tag timeout: 300_000
  test "a rebar3 project with a checkout of us forms a cluster" do
    Project.rebar_cluster!(Os.root())
  end
end
