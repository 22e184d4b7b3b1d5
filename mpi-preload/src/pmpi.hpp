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

}  // namespace tutti::mpi::pmpi
