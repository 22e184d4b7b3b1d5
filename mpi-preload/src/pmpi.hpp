// SPDX-License-Identifier: Apache-2.0
//
// The functions of the program's MPI library: pmpi::Bcast is its PMPI_Bcast.
#pragma once

#include "mpi_library.hpp"

namespace tutti::mpi::pmpi {

inline Entry<decltype(PMPI_Init)> Init{"PMPI_Init"};
inline Entry<decltype(PMPI_Init_thread)> Init_thread{"PMPI_Init_thread"};
inline Entry<decltype(PMPI_Initialized)> Initialized{"PMPI_Initialized"};
inline Entry<decltype(PMPI_Finalize)> Finalize{"PMPI_Finalize"};
inline Entry<decltype(PMPI_Finalized)> Finalized{"PMPI_Finalized"};
inline Entry<decltype(PMPI_Abort)> Abort{"PMPI_Abort"};
inline Entry<decltype(PMPI_Iprobe)> Iprobe{"PMPI_Iprobe"};

inline Entry<decltype(PMPI_Comm_rank)> Comm_rank{"PMPI_Comm_rank"};
inline Entry<decltype(PMPI_Comm_size)> Comm_size{"PMPI_Comm_size"};
inline Entry<decltype(PMPI_Comm_test_inter)> Comm_test_inter{"PMPI_Comm_test_inter"};
inline Entry<decltype(PMPI_Comm_dup)> Comm_dup{"PMPI_Comm_dup"};
inline Entry<decltype(PMPI_Comm_free)> Comm_free{"PMPI_Comm_free"};
inline Entry<decltype(PMPI_Comm_get_name)> Comm_get_name{"PMPI_Comm_get_name"};
inline Entry<decltype(PMPI_Comm_group)> Comm_group{"PMPI_Comm_group"};
inline Entry<decltype(PMPI_Group_translate_ranks)> Group_translate_ranks{"PMPI_Group_translate_ranks"};
inline Entry<decltype(PMPI_Group_free)> Group_free{"PMPI_Group_free"};
inline Entry<decltype(PMPI_Comm_create_keyval)> Comm_create_keyval{"PMPI_Comm_create_keyval"};
inline Entry<decltype(PMPI_Comm_get_attr)> Comm_get_attr{"PMPI_Comm_get_attr"};
inline Entry<decltype(PMPI_Comm_set_attr)> Comm_set_attr{"PMPI_Comm_set_attr"};
inline Entry<decltype(PMPI_Comm_delete_attr)> Comm_delete_attr{"PMPI_Comm_delete_attr"};
inline Entry<decltype(PMPI_Comm_set_errhandler)> Comm_set_errhandler{"PMPI_Comm_set_errhandler"};
inline Entry<decltype(PMPI_Comm_call_errhandler)> Comm_call_errhandler{"PMPI_Comm_call_errhandler"};

inline Entry<decltype(PMPI_Type_size_x)> Type_size_x{"PMPI_Type_size_x"};
inline Entry<decltype(PMPI_Type_get_extent)> Type_get_extent{"PMPI_Type_get_extent"};
inline Entry<decltype(PMPI_Type_get_true_extent)> Type_get_true_extent{"PMPI_Type_get_true_extent"};
inline Entry<decltype(PMPI_Type_get_envelope)> Type_get_envelope{"PMPI_Type_get_envelope"};
inline Entry<decltype(PMPI_Type_get_contents)> Type_get_contents{"PMPI_Type_get_contents"};
inline Entry<decltype(PMPI_Type_get_name)> Type_get_name{"PMPI_Type_get_name"};
inline Entry<decltype(PMPI_Type_create_hindexed)> Type_create_hindexed{"PMPI_Type_create_hindexed"};
inline Entry<decltype(PMPI_Type_commit)> Type_commit{"PMPI_Type_commit"};
inline Entry<decltype(PMPI_Type_dup)> Type_dup{"PMPI_Type_dup"};
inline Entry<decltype(PMPI_Type_free)> Type_free{"PMPI_Type_free"};
inline Entry<decltype(PMPI_Pack)> Pack{"PMPI_Pack"};
inline Entry<decltype(PMPI_Unpack)> Unpack{"PMPI_Unpack"};
inline Entry<decltype(PMPI_Op_commutative)> Op_commutative{"PMPI_Op_commutative"};
inline Entry<decltype(PMPI_Reduce_local)> Reduce_local{"PMPI_Reduce_local"};

inline Entry<decltype(PMPI_Barrier)> Barrier{"PMPI_Barrier"};
inline Entry<decltype(PMPI_Bcast)> Bcast{"PMPI_Bcast"};
inline Entry<decltype(PMPI_Reduce)> Reduce{"PMPI_Reduce"};
inline Entry<decltype(PMPI_Allreduce)> Allreduce{"PMPI_Allreduce"};
inline Entry<decltype(PMPI_Gather)> Gather{"PMPI_Gather"};
inline Entry<decltype(PMPI_Gatherv)> Gatherv{"PMPI_Gatherv"};
inline Entry<decltype(PMPI_Allgather)> Allgather{"PMPI_Allgather"};
inline Entry<decltype(PMPI_Allgatherv)> Allgatherv{"PMPI_Allgatherv"};
inline Entry<decltype(PMPI_Scatter)> Scatter{"PMPI_Scatter"};
inline Entry<decltype(PMPI_Scatterv)> Scatterv{"PMPI_Scatterv"};
inline Entry<decltype(PMPI_Alltoall)> Alltoall{"PMPI_Alltoall"};
inline Entry<decltype(PMPI_Alltoallv)> Alltoallv{"PMPI_Alltoallv"};
inline Entry<decltype(PMPI_Alltoallw)> Alltoallw{"PMPI_Alltoallw"};
inline Entry<decltype(PMPI_Reduce_scatter)> Reduce_scatter{"PMPI_Reduce_scatter"};
inline Entry<decltype(PMPI_Reduce_scatter_block)> Reduce_scatter_block{"PMPI_Reduce_scatter_block"};
inline Entry<decltype(PMPI_Scan)> Scan{"PMPI_Scan"};
inline Entry<decltype(PMPI_Exscan)> Exscan{"PMPI_Exscan"};

inline Entry<decltype(PMPI_Ibarrier)> Ibarrier{"PMPI_Ibarrier"};
inline Entry<decltype(PMPI_Ibcast)> Ibcast{"PMPI_Ibcast"};
inline Entry<decltype(PMPI_Ireduce)> Ireduce{"PMPI_Ireduce"};
inline Entry<decltype(PMPI_Iallreduce)> Iallreduce{"PMPI_Iallreduce"};
inline Entry<decltype(PMPI_Igather)> Igather{"PMPI_Igather"};
inline Entry<decltype(PMPI_Igatherv)> Igatherv{"PMPI_Igatherv"};
inline Entry<decltype(PMPI_Iallgather)> Iallgather{"PMPI_Iallgather"};
inline Entry<decltype(PMPI_Iallgatherv)> Iallgatherv{"PMPI_Iallgatherv"};
inline Entry<decltype(PMPI_Iscatter)> Iscatter{"PMPI_Iscatter"};
inline Entry<decltype(PMPI_Iscatterv)> Iscatterv{"PMPI_Iscatterv"};
inline Entry<decltype(PMPI_Ialltoall)> Ialltoall{"PMPI_Ialltoall"};
inline Entry<decltype(PMPI_Ialltoallv)> Ialltoallv{"PMPI_Ialltoallv"};
inline Entry<decltype(PMPI_Ialltoallw)> Ialltoallw{"PMPI_Ialltoallw"};
inline Entry<decltype(PMPI_Ireduce_scatter)> Ireduce_scatter{"PMPI_Ireduce_scatter"};
inline Entry<decltype(PMPI_Ireduce_scatter_block)> Ireduce_scatter_block{"PMPI_Ireduce_scatter_block"};
inline Entry<decltype(PMPI_Iscan)> Iscan{"PMPI_Iscan"};
inline Entry<decltype(PMPI_Iexscan)> Iexscan{"PMPI_Iexscan"};

inline Entry<decltype(PMPI_Wait)> Wait{"PMPI_Wait"};
inline Entry<decltype(PMPI_Waitall)> Waitall{"PMPI_Waitall"};
inline Entry<decltype(PMPI_Waitany)> Waitany{"PMPI_Waitany"};
inline Entry<decltype(PMPI_Waitsome)> Waitsome{"PMPI_Waitsome"};
inline Entry<decltype(PMPI_Test)> Test{"PMPI_Test"};
inline Entry<decltype(PMPI_Testall)> Testall{"PMPI_Testall"};
inline Entry<decltype(PMPI_Testany)> Testany{"PMPI_Testany"};
inline Entry<decltype(PMPI_Testsome)> Testsome{"PMPI_Testsome"};
inline Entry<decltype(PMPI_Request_get_status)> Request_get_status{"PMPI_Request_get_status"};
inline Entry<decltype(PMPI_Grequest_start)> Grequest_start{"PMPI_Grequest_start"};
inline Entry<decltype(PMPI_Grequest_complete)> Grequest_complete{"PMPI_Grequest_complete"};
inline Entry<decltype(PMPI_Status_set_elements)> Status_set_elements{"PMPI_Status_set_elements"};
inline Entry<decltype(PMPI_Status_set_cancelled)> Status_set_cancelled{"PMPI_Status_set_cancelled"};
inline Entry<decltype(PMPI_Op_free)> Op_free{"PMPI_Op_free"};
inline Entry<decltype(PMPI_Send)> Send{"PMPI_Send"};
inline Entry<decltype(PMPI_Ssend)> Ssend{"PMPI_Ssend"};
inline Entry<decltype(PMPI_Recv)> Recv{"PMPI_Recv"};
inline Entry<decltype(PMPI_Sendrecv)> Sendrecv{"PMPI_Sendrecv"};
inline Entry<decltype(PMPI_Probe)> Probe{"PMPI_Probe"};
inline Entry<decltype(PMPI_Mprobe)> Mprobe{"PMPI_Mprobe"};
inline Entry<decltype(PMPI_Isend)> Isend{"PMPI_Isend"};
inline Entry<decltype(PMPI_Issend)> Issend{"PMPI_Issend"};
inline Entry<decltype(PMPI_Irecv)> Irecv{"PMPI_Irecv"};
inline Entry<decltype(PMPI_Improbe)> Improbe{"PMPI_Improbe"};

inline Entry<decltype(PMPI_Comm_dup_with_info)> Comm_dup_with_info{"PMPI_Comm_dup_with_info"};
inline Entry<decltype(PMPI_Comm_split)> Comm_split{"PMPI_Comm_split"};
inline Entry<decltype(PMPI_Comm_split_type)> Comm_split_type{"PMPI_Comm_split_type"};
inline Entry<decltype(PMPI_Comm_create)> Comm_create{"PMPI_Comm_create"};
inline Entry<decltype(PMPI_Comm_create_group)> Comm_create_group{"PMPI_Comm_create_group"};
inline Entry<decltype(PMPI_Cart_create)> Cart_create{"PMPI_Cart_create"};
inline Entry<decltype(PMPI_Cart_sub)> Cart_sub{"PMPI_Cart_sub"};
inline Entry<decltype(PMPI_Graph_create)> Graph_create{"PMPI_Graph_create"};
inline Entry<decltype(PMPI_Dist_graph_create)> Dist_graph_create{"PMPI_Dist_graph_create"};
inline Entry<decltype(PMPI_Dist_graph_create_adjacent)> Dist_graph_create_adjacent{"PMPI_Dist_graph_create_adjacent"};
inline Entry<decltype(PMPI_Intercomm_merge)> Intercomm_merge{"PMPI_Intercomm_merge"};

#if MPI_VERSION >= 4
inline Entry<decltype(PMPI_Bcast_c)> Bcast_c{"PMPI_Bcast_c"};
inline Entry<decltype(PMPI_Reduce_c)> Reduce_c{"PMPI_Reduce_c"};
inline Entry<decltype(PMPI_Allreduce_c)> Allreduce_c{"PMPI_Allreduce_c"};
inline Entry<decltype(PMPI_Gather_c)> Gather_c{"PMPI_Gather_c"};
inline Entry<decltype(PMPI_Gatherv_c)> Gatherv_c{"PMPI_Gatherv_c"};
inline Entry<decltype(PMPI_Allgather_c)> Allgather_c{"PMPI_Allgather_c"};
inline Entry<decltype(PMPI_Allgatherv_c)> Allgatherv_c{"PMPI_Allgatherv_c"};
inline Entry<decltype(PMPI_Scatter_c)> Scatter_c{"PMPI_Scatter_c"};
inline Entry<decltype(PMPI_Scatterv_c)> Scatterv_c{"PMPI_Scatterv_c"};
inline Entry<decltype(PMPI_Alltoall_c)> Alltoall_c{"PMPI_Alltoall_c"};
inline Entry<decltype(PMPI_Alltoallv_c)> Alltoallv_c{"PMPI_Alltoallv_c"};
inline Entry<decltype(PMPI_Alltoallw_c)> Alltoallw_c{"PMPI_Alltoallw_c"};
inline Entry<decltype(PMPI_Reduce_scatter_c)> Reduce_scatter_c{"PMPI_Reduce_scatter_c"};
inline Entry<decltype(PMPI_Reduce_scatter_block_c)> Reduce_scatter_block_c{"PMPI_Reduce_scatter_block_c"};
inline Entry<decltype(PMPI_Scan_c)> Scan_c{"PMPI_Scan_c"};
inline Entry<decltype(PMPI_Exscan_c)> Exscan_c{"PMPI_Exscan_c"};
inline Entry<decltype(PMPI_Ibcast_c)> Ibcast_c{"PMPI_Ibcast_c"};
inline Entry<decltype(PMPI_Ireduce_c)> Ireduce_c{"PMPI_Ireduce_c"};
inline Entry<decltype(PMPI_Iallreduce_c)> Iallreduce_c{"PMPI_Iallreduce_c"};
inline Entry<decltype(PMPI_Igather_c)> Igather_c{"PMPI_Igather_c"};
inline Entry<decltype(PMPI_Igatherv_c)> Igatherv_c{"PMPI_Igatherv_c"};
inline Entry<decltype(PMPI_Iallgather_c)> Iallgather_c{"PMPI_Iallgather_c"};
inline Entry<decltype(PMPI_Iallgatherv_c)> Iallgatherv_c{"PMPI_Iallgatherv_c"};
inline Entry<decltype(PMPI_Iscatter_c)> Iscatter_c{"PMPI_Iscatter_c"};
inline Entry<decltype(PMPI_Iscatterv_c)> Iscatterv_c{"PMPI_Iscatterv_c"};
inline Entry<decltype(PMPI_Ialltoall_c)> Ialltoall_c{"PMPI_Ialltoall_c"};
inline Entry<decltype(PMPI_Ialltoallv_c)> Ialltoallv_c{"PMPI_Ialltoallv_c"};
inline Entry<decltype(PMPI_Ialltoallw_c)> Ialltoallw_c{"PMPI_Ialltoallw_c"};
inline Entry<decltype(PMPI_Ireduce_scatter_c)> Ireduce_scatter_c{"PMPI_Ireduce_scatter_c"};
inline Entry<decltype(PMPI_Ireduce_scatter_block_c)> Ireduce_scatter_block_c{"PMPI_Ireduce_scatter_block_c"};
inline Entry<decltype(PMPI_Iscan_c)> Iscan_c{"PMPI_Iscan_c"};
inline Entry<decltype(PMPI_Iexscan_c)> Iexscan_c{"PMPI_Iexscan_c"};
#endif

}  // namespace tutti::mpi::pmpi
