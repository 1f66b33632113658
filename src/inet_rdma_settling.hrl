%% A settlement under way: of inet_rdma_settlement and the modules of its two roles.
-record(settling, {
    connection :: inet_rdma_bootstrap:t(),
    node :: binary(),
    config :: inet_rdma_options:config(),
    own :: map(),
    peer = #{} :: map(),
    %% The fabrics that have been tried, an ordset.
    tried = [] :: [shm | verbs],
    deadline :: integer()
}).
