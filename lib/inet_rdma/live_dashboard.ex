defmodule InetRdma.LiveDashboard do
  @moduledoc """
  A page of the links of a node for Phoenix LiveDashboard, 0.8 or later.

  inet_rdma does not depend on Phoenix: the page is compiled in the application that uses it.

      defmodule MyAppWeb.LinksPage do
        use InetRdma.LiveDashboard
      end

      # In the router:
      live_dashboard "/dashboard", additional_pages: [links: MyAppWeb.LinksPage]

  The page shows the node that is chosen in the dashboard, if inet_rdma is in its code path, and has the columns of
  `:inet_rdma.i/0`.
  """

  @doc false
  defmacro __using__(_options) do
    quote do
      use Phoenix.LiveDashboard.PageBuilder
      import Phoenix.LiveDashboard.Helpers, only: [format_bytes: 1]

      @impl true
      def menu_link(_, _), do: {:ok, "Links"}

      @impl true
      def render(var!(assigns)) do
        ~H"""
        <.live_table
          id="inet-rdma-links"
          dom_id="inet-rdma-links"
          page={@page}
          title="Links"
          row_fetcher={&InetRdma.LiveDashboard.fetch/2}
          rows_name="links"
        >
          <:col field={:node} sortable={:asc} />
          <:col field={:fabric} sortable={:asc} />
          <:col field={:state} />
          <:col :let={link} field={:bytes_received} header="Received" text_align="right" sortable={:desc}>
            <%= format_bytes(link.bytes_received) %>
          </:col>
          <:col field={:packets_received} header="Packets" text_align="right" sortable={:desc} />
          <:col :let={link} field={:bytes_sent} header="Sent" text_align="right" sortable={:desc}>
            <%= format_bytes(link.bytes_sent) %>
          </:col>
          <:col field={:packets_sent} header="Packets" text_align="right" sortable={:desc} />
          <:col field={:direct} text_align="right" />
          <:col :let={link} field={:bytes_pending} header="Queued" text_align="right" sortable={:desc}>
            <%= format_bytes(link.bytes_pending) %>
          </:col>
          <:col field={:losses} text_align="right" sortable={:desc} />
          <:col field={:resumes} text_align="right" sortable={:desc} />
          <:col field={:moves} text_align="right" sortable={:desc} />
          <:col field={:via} />
          <:col field={:why} />
        </.live_table>
        """
      end
    end
  end

  @doc false
  # The rows that the table asks for, and how many links there are.
  @spec fetch(map(), node()) :: {[map()], non_neg_integer()}
  def fetch(%{search: search, sort_by: sort_by, sort_dir: sort_dir, limit: limit}, node) do
    rows = for info <- infos(node), info.node != :undefined, row = row(info), matches?(row, search), do: row
    {rows |> Enum.sort_by(&Map.fetch!(&1, sort_by), sort_dir) |> Enum.take(limit), length(rows)}
  end

  # A node without the library shows no links.
  defp infos(node) do
    :erpc.call(node, :inet_rdma, :info, [], 5_000)
  catch
    _kind, _reason -> []
  end

  # A link without a session, which ends with its connection, does not count these.
  @none %{bytes_pending: 0, losses: 0, resumes: 0, moves: 0}

  defp row(info) do
    texts = %{node: to_string(info.node), fabric: to_string(info.fabric), why: to_string(info.why)}
    @none |> Map.merge(info) |> Map.merge(texts) |> Map.merge(InetRdma.Top.words(info))
  end

  defp matches?(_row, empty) when empty in [nil, ""], do: true
  defp matches?(row, search), do: Enum.any?([row.node, row.fabric, row.why], &String.contains?(&1, search))
end
