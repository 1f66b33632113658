defmodule InetRdma.LiveDashboard do
  @moduledoc """
  A page of the links of a node, and of what fills them, for Phoenix LiveDashboard, 0.8 or later.

  inet_rdma does not depend on Phoenix: the page is compiled in the application that uses it.

      defmodule MyAppWeb.LinksPage do
        use InetRdma.LiveDashboard
      end

      # In the router:
      live_dashboard "/dashboard", additional_pages: [links: MyAppWeb.LinksPage]

  The page shows the node that is chosen in the dashboard, if inet_rdma is in its code path. The table "Links" has the
  columns of `:inet_rdma.i/0`. The table "Senders" has the heaviest rows of `:inet_rdma.top/0`, of about the last 10 s,
  in both directions of each link, most bytes per second first. The search is for rows of both tables.
  """

  @doc false
  defmacro __using__(_options) do
    quote do
      use Phoenix.LiveDashboard.PageBuilder
      import Phoenix.LiveDashboard.Helpers, only: [format_bytes: 1]

      @impl true
      def menu_link(_, _), do: {:ok, "Links"}

      # Two tables and no tabs: a refresh does not render the slot of a live_nav_bar again.
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
        <.live_table
          id="inet-rdma-senders"
          dom_id="inet-rdma-senders"
          page={@page}
          title="Senders"
          row_fetcher={&InetRdma.LiveDashboard.fetch_senders/2}
          rows_name="rows"
          default_sort_by={:rate}
        >
          <:col field={:node} sortable={:asc} />
          <:col field={:direction} sortable={:asc} />
          <:col :let={row} field={:percent} header="Share" text_align="right" sortable={:desc}>
            <%= row.percent %>%
          </:col>
          <:col :let={row} field={:rate} text_align="right" sortable={:desc}>
            <%= format_bytes(row.rate) %>/s
          </:col>
          <:col field={:operation} sortable={:asc} />
          <:col field={:from} />
          <:col field={:to} />
        </.live_table>
        """
      end
    end
  end

  @doc false
  # The rows that the table of links asks for, and how many links there are.
  @spec fetch(map(), node()) :: {[map()], non_neg_integer()}
  def fetch(order, node) do
    rows = for info <- call(node, :info), info.node != :undefined, do: row(info)
    ordered(rows, [:node, :fabric, :why], order)
  end

  @doc false
  # The rows that the table of senders asks for, and how many there are: none for a link that does not
  # count its senders.
  @spec fetch_senders(map(), node()) :: {[map()], non_neg_integer()}
  def fetch_senders(order, node) do
    rows =
      for {peer, {:ok, top}} <- call(node, :top),
          direction <- [:sent, :received],
          row <- top[direction].recent.rows,
          do: sender(peer, direction, row)

    ordered(rows, [:node, :operation, :from, :to], order)
  end

  defp ordered(rows, searched, %{search: search, sort_by: sort_by, sort_dir: sort_dir, limit: limit}) do
    found = for row <- rows, matches?(row, searched, search), do: row
    {found |> Enum.sort_by(&Map.fetch!(&1, sort_by), sort_dir) |> Enum.take(limit), length(found)}
  end

  # A node without the library, or with one that does not have the function, shows no rows.
  defp call(node, function) do
    :erpc.call(node, :inet_rdma, function, [], 5_000)
  catch
    _kind, _reason -> []
  end

  # A link without a session, which ends with its connection, does not count these.
  @none %{bytes_pending: 0, losses: 0, resumes: 0, moves: 0}

  defp row(info) do
    texts = %{node: to_string(info.node), fabric: to_string(info.fabric), why: to_string(info.why)}
    @none |> Map.merge(info) |> Map.merge(texts) |> Map.merge(InetRdma.Top.words(info))
  end

  # The words of `mix inet_rdma.top --senders`.
  defp sender(peer, direction, %{percent: percent, at_most: rate, operation: operation, from: from, to: to}) do
    [node, direction, operation] = Enum.map([peer, direction, operation], &to_string/1)
    [from, to] = for party <- [from, to], do: to_string(:inet_rdma_top.text(party))
    %{node: node, direction: direction, percent: percent, rate: rate, operation: operation, from: from, to: to}
  end

  defp matches?(_row, _fields, empty) when empty in [nil, ""], do: true
  defp matches?(row, fields, search), do: Enum.any?(fields, &String.contains?(row[&1], search))
end
