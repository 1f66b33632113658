%% The clouds whose machines the doctor recognises by what their firmware says of itself
%% (/sys/class/dmi/id), and what each offers of RDMA: docs/HARDWARE.md has the same places.
-module(inet_rdma_places).

-export([of_machine/1, files/0]).
-export_type([place/0, words/0]).

%% By the names of files/0; undefined: the file is not there, or cannot be read.
-type words() :: #{string() => binary() | undefined}.

%% offers: what can be had there. step: what to do to have it; none: there is nothing to be had.
-type place() :: #{name := string(), offers := string(), step := string() | none}.

%% Those that each user may read.
-spec files() -> [string()].
files() -> ["sys_vendor", "product_name", "chassis_asset_tag"].

%% Also other hosts of Microsoft's hypervisor have the first two words of Azure; the tag is Azure's.
-spec of_machine(words()) -> place() | undefined.
of_machine(#{"sys_vendor" := <<"Amazon EC2">>}) ->
    #{
        name => "AWS",
        offers =>
            "EFA has no reliable connections: links to other hosts stay on TCP, and several flows "
            "pass the limit of one (docs/DEPLOY.md, MPTCP)",
        step => none
    };
of_machine(#{"chassis_asset_tag" := <<"7783-7084-3265-9085-8269-3286-77">>}) ->
    #{
        name => "Azure",
        offers =>
            "the sizes HB, HX and ND have InfiniBand (provider mlx5), those of Guest RDMA the "
            "provider mana",
        step =>
            "such a size with an image that has the drivers, all machines in one availability or "
            "scale set, an IP address on the InfiniBand interface"
    };
of_machine(#{"sys_vendor" := <<"Google">>, "product_name" := <<"Google Compute Engine">>}) ->
    #{
        name => "Google Cloud",
        offers => "H4D has the provider irdma, A3 Ultra and A4 have mlx5",
        step =>
            "such a machine with interfaces of type IRDMA or MRDMA in a network of its RDMA "
            "profile, all machines in that zone"
    };
of_machine(#{"sys_vendor" := <<"Alibaba Cloud">>}) ->
    #{
        name => "Alibaba Cloud",
        offers => "families with eRDMA have the provider erdma",
        step =>
            "such a family, eRDMA switched on for the network interface, an image with its software"
    };
of_machine(#{}) ->
    undefined.
