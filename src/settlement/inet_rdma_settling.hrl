%% A settlement under way: the modules inet_rdma_settlement* pass it from function to function.
-record(settling, {
    role :: initiator | acceptor,
    %% The channel for its messages, and the callbacks of that (inet_rdma_settlement_message).
    channel :: {inet_rdma_transport, inet_rdma_transport:t()} | {inet_rdma_session, inet_rdma_session:t()},
    %% The callbacks of what is settled (inet_rdma_settlement_queue).
    module = inet_rdma_queue :: inet_rdma_queue | inet_rdma_tls_stream,
    %% The port of the session that gets the queue pair; none: a link without a session, or a stream.
    session_port = none :: port() | none,
    %% Why no path may be tried for a link: it has no session.
    lacks = none :: none | (Why :: binary()),
    %% The peer's name; none: a stream, whose peer has no name.
    node :: binary() | none,
    config :: inet_rdma_options:config(),
    %% What this side says in its hello, and what the peer has said in its own.
    own :: map(),
    peer = #{} :: map(),
    %% The initiator's: how it meets the peer over shm.
    reach = none :: none | inet_rdma_neighbours:reach(),
    %% The fabrics that have been tried, an ordset.
    tried = [] :: [inet_rdma_options:link_fabric()],
    %% The keys of the path that is tried.
    keys = none :: inet_rdma_keys:pair(),
    %% In milliseconds of erlang:monotonic_time/1.
    deadline :: integer()
}).
