%% A settlement under way: of inet_rdma_settlement and the modules of its two roles.
-record(settling, {
    role :: initiator | acceptor,
    connection :: inet_rdma_bootstrap:t(),
    %% What is settled.
    module = inet_rdma_link :: inet_rdma_link | inet_rdma_stream,
    %% A stream's peer is none.
    node :: binary() | none,
    config :: inet_rdma_options:config(),
    own :: map(),
    peer = #{} :: map(),
    %% The fabrics that have been tried, an ordset.
    tried = [] :: [shm | verbs],
    %% Over TLS: the keys of the way that is tried, this side's and the peer's.
    keys = none :: none | {Send :: inet_rdma_nif:key(), Receive :: inet_rdma_nif:key()},
    deadline :: integer()
}).
